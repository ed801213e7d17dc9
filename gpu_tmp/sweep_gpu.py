import importlib.util, json, re, sys, itertools, os, torch, triton, time
from triton.testing import do_bench
info=json.load(open("gpu_tmp/info.json"))
BW=4.28e12
def load(src,name):
    p=f"/tmp/{name}.py"; open(p,"w").write(src)
    s=importlib.util.spec_from_file_location(name,p); m=importlib.util.module_from_spec(s); sys.modules[name]=m; s.loader.exec_module(m); return m
cnt=0
def bench(op, M, N, subs, tag, which="fb"):
    global cnt; cnt+=1
    i=info[op]; src=open(f"gpu_tmp/k_{op}.py").read()
    for a,b in subs: src=re.sub(a,b,src)
    try:
        m=load(src,f"m{cnt}"); f=getattr(m,i["function"])
        args=[];sc={s["name"]:s["default"] for s in i["scalars"]}
        for a in i["call_order"]:
            t=[t for t in i["tensors"] if t["name"]==a]
            if not t: args.append(sc[a]); continue
            t=t[0]; shape=[]
            for ax in t["shape"]: shape.append(M if ax in("*","n_rows") else N)
            if t["dtype"]=="int64": args.append(torch.randint(0,N,shape,device="cuda")); continue
            args.append(torch.randn(shape,device="cuda",dtype=torch.bfloat16).requires_grad_(t["needs_grad"]))
        y=f.apply(*args); y0=y if not isinstance(y,tuple) else y
        ys=y if isinstance(y,tuple) else (y,)
        dys=[torch.randn_like(a) for a in ys]
        ctx=ys[0].grad_fn
        class C: pass
        with torch.no_grad():
            tf=do_bench(lambda: f.apply(*args),warmup=10,rep=40,return_mode="median") if "f" in which else 0
        saved=ctx.saved_tensors
        def bw(): return torch.autograd.grad(ys,[a for a in args if isinstance(a,torch.Tensor) and a.requires_grad],dys,retain_graph=True)
        tb=do_bench(bw,warmup=10,rep=40,return_mode="median") if "b" in which else 0
        T=i["traffic"]; el=M*N*2
        ff=T["forward_tensors"]*el/BW*1e3; fb=T["backward_tensors"]*el/BW*1e3
        print(f"{op:20s} {M}x{N:6d} {tag:34s} fwd {tf:.4f} ({ff/tf*100 if tf else 0:3.0f}%) bwd {tb:.4f} ({fb/tb*100 if tb else 0:3.0f}%)",flush=True)
    except Exception as e: print(op,M,N,tag,"ERR",str(e)[-300:].replace("\n"," "),flush=True)
a=torch.empty(1<<30,dtype=torch.uint8,device="cuda"); b=torch.empty_like(a)
t=do_bench(lambda: b.copy_(a)); print("copy TB/s", 2*a.numel()/t/1e9)
for mb in (64,128,256):
    a=torch.empty(mb<<20,dtype=torch.uint8,device="cuda"); b=torch.empty_like(a); t=do_bench(lambda: b.copy_(a)); print("copy",mb,"MiB",t,"ms", 2*a.numel()/t/1e9,"TB/s")
del a,b
which=sys.argv[1]
if which=="1":
    for op,N in (("relu_squared",4096),("relu_squared",16384),("swiglu",16384),("geglu",16384)):
        for B,W in ((1024,4),(2048,4),(2048,8),(4096,4),(4096,8),(4096,16),(8192,8),(8192,16)):
            bench(op,8192,N,[(r"BLOCK_SIZE, num_warps = 4096, 8",f"BLOCK_SIZE, num_warps = {B}, {W}")],f"B{B} w{W}")
    for op,N in (("swiglu_packed",16384),("bias_gelu",4096)):
        for B,W in ((1024,4),(2048,4),(4096,8)):
            bench(op,8192,N,[(r"4096\)",f"{B})"),(r"4096 //",f"{B} //"),(r"num_warps = 8",f"num_warps = {W}")],f"B{B} w{W}","f" if op=="bias_gelu" else "fb")
    for op,N in (("rms_norm",4096),("rms_norm",16384),("layer_norm",16384),("dyt",16384),("fused_add_rms_norm",16384),("softmax",16384),("bias_gelu",4096),("cross_entropy_none",32768)):
        for W in (4,8,16,32):
            ks=(1,2,4) if info[op]["bwd"]=="row_block" else (1,)
            for K in ks:
                if W==32 and K>2: continue
                bench(op,8192,N,[(r"BLOCK_SIZE, num_warps = calculate_settings\(n_cols\)",f"BLOCK_SIZE, num_warps = triton.next_power_of_2(n_cols), {W}"),(r"min\(get_sm_count",f"min({K} * get_sm_count")],f"w{W} K{K}","fb" if K==1 else "b")
