// SPDX-License-Identifier: MIT
//! Loads what `weightfs convert` made of records into the modules and optimizers of Burn 0.22.
//!   modules module NAME IN.bpk          prints the tensors of the module afterwards, one JSON object a line
//!   modules optim NAME IN.bpk OUT.bpk   loads the state, makes a step when NAME ends in +step, saves it
use burn::module::{Module, Param, ParamId};
use burn::nn;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, RmsPropConfig, SgdConfig};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use burn_store::{BurnpackStore, ModuleSnapshot};
use serde_json::json;

#[derive(Module, Debug)]
struct ConvBn {
    conv: nn::conv::Conv2d,
    bn: nn::BatchNorm,
    act: nn::Relu,
    pool: nn::pool::MaxPool2d,
    drop: nn::Dropout,
}

#[derive(Module, Debug)]
struct Block {
    fc1: nn::Linear,
    act: nn::Relu,
    fc2: nn::Linear,
}

#[derive(Module, Debug)]
struct Blocks {
    blocks: Vec<Block>,
    none: Vec<nn::Linear>,
    many: Vec<nn::Embedding>,
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
enum Head {
    Fc(nn::Linear),
    Conv(nn::conv::Conv1d),
    Act(nn::Relu),
    Many(Vec<nn::Embedding>),
}

#[derive(Module, Debug)]
struct EnumNet {
    stem: nn::Linear,
    head: Head,
    heads: Vec<Head>,
}

#[derive(Module, Debug)]
struct Params {
    r1: Param<Tensor<1>>,
    r2: Param<Tensor<2>>,
    r5: Param<Tensor<5>>,
    ints: Param<Tensor<2, Int>>,
    mask: Param<Tensor<1, Bool>>,
}

fn lin(i: usize, o: usize, bias: bool) -> nn::Linear {
    nn::LinearConfig::new(i, o).with_bias(bias).init(&Device::default())
}

fn emb(n: usize, d: usize) -> nn::Embedding {
    nn::EmbeddingConfig::new(n, d).init(&Device::default())
}

fn zeros<const D: usize>(n: u64, dims: [usize; D]) -> Param<Tensor<D>> {
    Param::initialized(ParamId::from(n), Tensor::zeros(dims, &Device::default()))
}

fn params() -> Params {
    let d = Device::default();
    Params {
        r1: zeros(1, [4]),
        r2: zeros(2, [2, 3]),
        r5: zeros(3, [1, 2, 1, 2, 1]),
        ints: Param::initialized(ParamId::from(4), Tensor::<2, Int>::zeros([2, 3], &d)),
        mask: Param::initialized(ParamId::from(5), Tensor::<1, Bool>::from_data(TensorData::from([false; 5]), &d)),
    }
}

fn load<M: Module + ModuleSnapshot>(mut module: M, path: &str) {
    use sha2::Digest;
    let result = module.load_from(&mut BurnpackStore::from_file(path).auto_extension(false)).unwrap_or_else(|e| panic!("{e}"));
    assert!(result.missing.is_empty() && result.unused.is_empty() && result.errors.is_empty(), "{result:?}");
    for t in module.collect(None, None, false) {
        let bytes = t.to_bytes().unwrap();
        let hash: String = sha2::Sha256::digest(&bytes[..]).iter().map(|x| format!("{x:02x}")).collect();
        let shape: Vec<usize> = t.shape.iter().copied().collect();
        println!("{}", json!({"key": t.name, "dtype": format!("{:?}", t.dtype), "shape": shape, "sha256": hash, "param_id": t.param_id}));
    }
}

fn module(name: &str, path: &str) {
    let d = Device::default();
    match name {
        "linear" => load(lin(3, 2, true), path),
        "convbn" => load(
            ConvBn {
                conv: nn::conv::Conv2dConfig::new([2, 3], [3, 3]).with_padding(nn::PaddingConfig2d::Explicit(1, 1, 1, 1)).init(&d),
                bn: nn::BatchNormConfig::new(3).init(&d),
                act: nn::Relu::new(),
                pool: nn::pool::MaxPool2dConfig::new([2, 2]).init(),
                drop: nn::DropoutConfig::new(0.25).init(),
            },
            path,
        ),
        "blocks" => load(
            Blocks {
                blocks: (0..3).map(|_| Block { fc1: lin(2, 3, true), act: nn::Relu::new(), fc2: lin(3, 2, false) }).collect(),
                none: vec![],
                many: (0..18).map(|_| emb(1, 2)).collect(),
            },
            path,
        ),
        "enum-conv" => load(
            EnumNet {
                stem: lin(2, 2, true),
                head: Head::Conv(nn::conv::Conv1dConfig::new(2, 3, 3).init(&d)),
                heads: vec![Head::Act(nn::Relu::new()), Head::Fc(lin(1, 2, true)), Head::Many(vec![emb(1, 1), emb(1, 2)])],
            },
            path,
        ),
        "params" => load(params(), path),
        _ => panic!("no module {name}"),
    }
}

/// The model of the records `optim-*`: parameters 1 and 2 of their generator.
fn model(d: &Device) -> nn::Linear {
    let id = |n: u64| ParamId::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut m = nn::LinearConfig::new(3, 2).init(d);
    m.weight = Param::initialized(id(1), Tensor::<2>::from_data(TensorData::from([[1.0f32, 1.1], [1.2, 1.3], [1.4, 1.5]]), d).require_grad());
    m.bias = Some(Param::initialized(id(2), Tensor::<1>::from_data(TensorData::from([2.0f32, 2.1]), d).require_grad()));
    m
}

fn optim(name: &str, input: &str, output: &str) {
    let d = Device::default().autodiff();
    let (name, steps) = match name.strip_suffix("+step") {
        Some(n) => (n, 1),
        None => (name, 0),
    };
    macro_rules! run {
        ($o:expr) => {{
            let mut o = $o.load(input).unwrap_or_else(|e| panic!("{e}"));
            let mut m = model(&d);
            let x = Tensor::<2>::from_data(TensorData::from([[1.0f32, 2.0, 3.0], [0.5, -1.0, 0.25]]), &d);
            for _ in 0..steps {
                let y = m.forward(x.clone());
                let g = (y.clone() * y).sum().backward();
                let g = GradientsParams::from_grads(g, &m);
                m = o.step(0.01, m, g);
            }
            o.save(output).unwrap();
        }};
    }
    match name {
        "optim-adam" => run!(AdamConfig::new().init()),
        "optim-adamw" => run!(AdamWConfig::new().init()),
        "optim-sgd" => run!(SgdConfig::new().init()),
        "optim-sgd-momentum" => run!(SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init()),
        "optim-rmsprop" => run!(RmsPropConfig::new().with_centered(true).init()),
        _ => panic!("no optimizer {name}"),
    }
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    match a.iter().map(|x| x.as_str()).collect::<Vec<_>>()[1..] {
        ["module", name, path] => module(name, path),
        ["optim", name, input, output] => optim(name, input, output),
        _ => panic!("usage: modules module NAME IN | optim NAME IN OUT"),
    }
}
