// SPDX-License-Identifier: MIT
//! A record of many Linear layers, for measurements of Burn 0.21.
//!   convert make LAYERS N OUT     writes OUT.mpk: LAYERS layers of N x N
//!   convert convert LAYERS N IN OUT   loads IN.mpk with the recorder, saves OUT with burn-store
use burn::backend::NdArray;
use burn::module::Module;
use burn::nn;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder};
use burn::tensor::backend::Backend;
use burn_store::{BurnpackStore, ModuleSnapshot};
use std::time::Instant;

type B = NdArray<f32>;

#[derive(Module, Debug)]
struct Big<B: Backend> {
    layers: Vec<nn::Linear<B>>,
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (layers, n): (usize, usize) = (a[2].parse().unwrap(), a[3].parse().unwrap());
    let dev = Default::default();
    let new = || Big::<B> { layers: (0..layers).map(|_| nn::LinearConfig::new(n, n).with_bias(false).init(&dev)).collect() };
    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
    let start = Instant::now();
    match a[1].as_str() {
        "make" => new().save_file(a[4].clone(), &recorder).unwrap(),
        "convert" => {
            let record: BigRecord<B> = Recorder::<B>::load(&recorder, a[4].clone().into(), &dev).unwrap();
            println!("recorder.load: {:.2} s", start.elapsed().as_secs_f64());
            let module = new().load_record(record);
            module.save_into(&mut BurnpackStore::from_file(&a[5]).overwrite(true)).unwrap();
        }
        _ => panic!("make or convert"),
    }
    println!("all: {:.2} s", start.elapsed().as_secs_f64());
}
