"""How a printed ops module looks: the names and idioms of the target repository, as plain data. Pure."""

from __future__ import annotations

from pydantic import Field

from kernels.op_spec import Frozen


class ModuleStyle(Frozen):
    """Detected by agents.conventions in a checkout; `standalone()` needs torch and triton only."""

    op_name: str = Field(description='snake_case: "relu_squared" names kernels, wrappers and docstrings')
    function_class: str = Field(description='"LigerReLUSquaredFunction"')
    forward_wrapper: str = Field(description='"relu_squared_forward"')
    backward_wrapper: str = Field(description='"relu_squared_backward"')
    forward_kernel: str = Field(description='"_relu_squared_forward_kernel"')
    backward_kernel: str = Field(description='"_relu_squared_backward_kernel"')
    utils_module: str | None = Field(
        default=None,
        description='where calculate_settings and ensure_contiguous live, e.g. "liger_kernel.ops.utils"; None: print them',
    )
    device_context: bool = Field(
        default=False, description="launches are wrapped in utils' device_context(x.device)"
    )
    header: str = Field(default="", description="text for the top of the file, e.g. a licence; comment lines")

    @classmethod
    def standalone(cls, op_name: str) -> ModuleStyle:
        """A module that needs torch and triton only, as `liger-bot derive` prints it."""
        pascal = "".join(part[:1].upper() + part[1:] for part in op_name.split("_"))
        return cls(
            op_name=op_name,
            function_class=f"{pascal}Function",
            forward_wrapper=f"{op_name}_forward",
            backward_wrapper=f"{op_name}_backward",
            forward_kernel=f"_{op_name}_forward_kernel",
            backward_kernel=f"_{op_name}_backward_kernel",
        )
