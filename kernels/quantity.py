"""Products of sizes and scalars, such as `n_cols / 2` or `1 - label_smoothing`, and how they are fitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.op_spec import Frozen

# Decompositions round constants to fp32 (eps becomes 9.99999997e-07), so an exact match can't be asked for.
RELATIVE_TOLERANCE = 3e-7
POWERS = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5)


class Atom(Frozen):
    """`offset + scale * name`, where name is an axis size or a scalar parameter."""

    name: str
    offset: float = 0.0
    scale: float = 1.0

    def value(self, env: Mapping[str, float]) -> float:
        return self.offset + self.scale * float(env[self.name])


class Factor(Frozen):
    """An atom to a power."""

    atom: Atom
    power: float = 1.0


class Quantity(Frozen):
    """`coef * product(atom ** power)`; no factors means the number itself."""

    coef: float = 1.0
    factors: tuple[Factor, ...] = ()

    @classmethod
    def of(cls, name: str, power: float = 1.0) -> Quantity:
        return cls(factors=(Factor(atom=Atom(name=name), power=power),))

    @classmethod
    def number(cls, value: float) -> Quantity:
        return cls(coef=float(value))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(f.atom.name for f in self.factors)

    @property
    def is_number(self) -> bool:
        return not self.factors

    def value(self, env: Mapping[str, float]) -> float:
        result = self.coef
        for factor in self.factors:
            result *= factor.atom.value(env) ** factor.power
        return result

    def __mul__(self, other: Quantity) -> Quantity:
        powers: dict[tuple[str, float, float], float] = {}
        for factor in (*self.factors, *other.factors):
            key = (factor.atom.name, factor.atom.offset, factor.atom.scale)
            powers[key] = powers.get(key, 0.0) + factor.power
        factors = tuple(
            Factor(atom=Atom(name=n, offset=o, scale=s), power=p)
            for (n, o, s), p in sorted(powers.items())
            if p != 0.0
        )
        return Quantity(coef=self.coef * other.coef, factors=factors)

    def __pow__(self, power: float) -> Quantity:
        return Quantity(
            coef=self.coef**power,
            factors=tuple(Factor(atom=f.atom, power=f.power * power) for f in self.factors),
        )

    def __truediv__(self, other: Quantity) -> Quantity:
        return self * other**-1.0

    def same(self, other: Quantity) -> bool:
        """Equal up to rounding of the coefficient."""
        mine, theirs = self * Quantity(), other * Quantity()
        return mine.factors == theirs.factors and close(mine.coef, theirs.coef)

    def text(self) -> str:
        """As a Python expression, e.g. "n_cols * 0.5" is printed "n_cols / 2"."""
        top: list[str] = []
        bottom: list[str] = []
        coef = self.coef
        for factor in self.factors:
            (top if factor.power > 0 else bottom).append(_power_text(factor.atom, abs(factor.power)))
        if coef not in (1.0, -1.0) or not top:
            inverse = 1.0 / coef if coef else 0.0
            if coef and abs(coef) < 1 and inverse == int(inverse) and (top or bottom):
                bottom.insert(0, str(abs(int(inverse))))
                if not top:
                    top.append("1")
            else:
                top.insert(0, number_text(abs(coef)))
        sign = "-" if coef < 0 else ""
        text = sign + " * ".join(top)
        if len(bottom) == 1:
            return f"{text} / {bottom[0]}"
        return f"{text} / ({' * '.join(bottom)})" if bottom else text


def close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b))


def number_text(value: float) -> str:
    """A number as Python writes it; whole numbers without a fraction."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _power_text(atom: Atom, power: float) -> str:
    base = atom.name
    if atom.offset or atom.scale != 1.0:
        scaled = atom.name if abs(atom.scale) == 1.0 else f"{number_text(abs(atom.scale))} * {atom.name}"
        sign = "-" if atom.scale < 0 else "+"
        base = f"({number_text(atom.offset)} {sign} {scaled})"
    return base if power == 1.0 else f"{base}**{number_text(power)}"


def fit(
    values: Sequence[float],
    environments: Sequence[Mapping[str, float]],
    axes: Sequence[str],
) -> Quantity | None:
    """The product of sizes and scalars that gives `values[i]` in `environments[i]`; None when there is none.

    environments[0] is the base; the others change either all axes or one scalar, each twice.
    """
    base_value, base = values[0], environments[0]
    if all(v == base_value for v in values):
        return Quantity.number(base_value)
    changed: dict[str, list[int]] = {}
    axis_points: list[int] = []
    for index, env in enumerate(environments[1:], start=1):
        differing = [name for name in env if env[name] != base[name]]
        if any(name in axes for name in differing):
            axis_points.append(index)
        else:
            for name in differing:
                changed.setdefault(name, []).append(index)
    if base_value == 0.0:
        return _fit_through_zero(values, environments, changed)

    ratios = [v / base_value for v in values]
    result = Quantity()
    for name, points in changed.items():
        factor = _fit_scalar(name, points, ratios, environments)
        if factor is None:
            return None
        if factor.power:
            result *= Quantity(factors=(factor,))
    monomial = _fit_axes(axis_points, ratios, environments, axes, result)
    if monomial is None:
        return None
    result *= monomial
    at_base = result.value(base)
    if at_base == 0.0:
        return None
    result = Quantity(coef=_tidy(base_value / at_base), factors=result.factors)
    if all(close(result.value(env), v) for env, v in zip(environments, values, strict=True)):
        return result
    return None


def _tidy(coef: float) -> float:
    """Undo rounding noise in a coefficient that is a simple fraction."""
    for denominator in (1, 2, 3, 4, 5, 6, 7, 8, 16):
        scaled = coef * denominator
        if abs(scaled - round(scaled)) <= 1e-12 * max(1.0, abs(scaled)):
            return round(scaled) / denominator
    return coef


def _fit_scalar(
    name: str, points: Sequence[int], ratios: Sequence[float], environments: Sequence[Mapping[str, float]]
) -> Factor | None:
    """The factor in one scalar: (offset + name) ** power, preferring offsets 0, 1 and -1."""
    if all(ratios[i] == 1.0 for i in points):
        return Factor(atom=Atom(name=name), power=0.0)
    first, second = points[0], points[-1]
    s0, s1, s2 = (float(environments[i][name]) for i in (0, first, second))
    best: Factor | None = None
    for power in POWERS:
        if ratios[first] <= 0 or ratios[second] <= 0:
            if power not in (1.0, -1.0):
                continue
            r1, r2 = ratios[first] ** power, ratios[second] ** power
        else:
            r1, r2 = ratios[first] ** (1 / power), ratios[second] ** (1 / power)
        if r1 == 1.0:
            continue
        offset = (s1 - r1 * s0) / (r1 - 1)
        if abs(offset) < 1e-6 * max(abs(s0), 1e-12):
            offset = 0.0
        elif abs(offset - round(offset)) < 1e-6:
            offset = float(round(offset))
        if offset + s0 == 0 or not _nearly((offset + s2) / (offset + s0), r2):
            continue
        atom = Atom(name=name, offset=offset)
        if offset < 0 and offset + s0 < 0:
            atom = Atom(name=name, offset=-offset, scale=-1.0)
        candidate = Factor(atom=atom, power=power)
        if best is None or (abs(offset) in (0.0, 1.0), offset == 0.0) > (
            abs(best.atom.offset) in (0.0, 1.0),
            best.atom.offset == 0.0,
        ):
            best = candidate
    return best


def _nearly(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-30)


def _fit_axes(
    points: Sequence[int],
    ratios: Sequence[float],
    environments: Sequence[Mapping[str, float]],
    axes: Sequence[str],
    scalars: Quantity,
) -> Quantity | None:
    """The monomial in axis sizes. A scalar that had to move with an axis (num_groups) is divided out first."""
    if not points:
        return Quantity()
    base = environments[0]
    wanted = [ratios[i] / (scalars.value(environments[i]) / scalars.value(base)) for i in points]
    if all(_nearly(w, 1.0) for w in wanted):
        return Quantity()

    def search(remaining: Sequence[str], targets: Sequence[float], depth: int) -> Quantity | None:
        if all(_nearly(t, 1.0) for t in targets):
            return Quantity()
        if not remaining or depth == 0:
            return None
        head, rest = remaining[0], remaining[1:]
        skipped = search(rest, targets, depth)
        if skipped is not None:
            return skipped
        for power in POWERS:
            growth = [(float(environments[i][head]) / float(base[head])) ** power for i in points]
            found = search(rest, [t / g for t, g in zip(targets, growth, strict=True)], depth - 1)
            if found is not None:
                return found * Quantity.of(head, power)
        return None

    for depth in range(1, len(axes) + 1):
        found = search(tuple(axes), wanted, depth)
        if found is not None:
            return found
    return None


def _fit_through_zero(
    values: Sequence[float], environments: Sequence[Mapping[str, float]], changed: Mapping[str, Sequence[int]]
) -> Quantity | None:
    """A value that is 0 at the base: linear in one scalar, `coef * (name - base)`."""
    base = environments[0]
    moving = [name for name, points in changed.items() if any(values[i] != 0.0 for i in points)]
    if len(moving) != 1:
        return None
    name = moving[0]
    slopes = [values[i] / (float(environments[i][name]) - float(base[name])) for i in changed[name]]
    if not all(_nearly(s, slopes[0]) for s in slopes):
        return None
    factor = Factor(atom=Atom(name=name, offset=-float(base[name]) or 0.0))
    return Quantity(coef=_tidy(slopes[0]), factors=(factor,))
