//! The coordinator as regions and people meet it, on embedded adapters.

mod absence;
mod crossing;
mod definitions;
mod flood;
mod handing_on;
mod overruling;
mod trouble;
mod waiting;
mod world;
