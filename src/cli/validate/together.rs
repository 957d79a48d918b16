//! What only shows when the documents are seen side by side.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::check::Check;
use crate::config::{Fault, FieldPath};
use crate::inventory::{Extent, Inventory, Machine, MachineState};

impl Check {
    /// Checks all that was read, once all of it was.
    pub(super) fn all_together(&mut self) {
        let no_inventories = std::mem::take(&mut self.no_inventories);
        let named = no_inventories.into_iter().filter(|(file, _)| self.inventory_files.contains(file));
        named.for_each(|(_, faults)| self.faults.extend(faults));
        let extent = if self.faults.is_empty() { Extent::Whole } else { Extent::Part };
        let inventory = self.faults.take(Inventory::merge(&self.inventories, extent));
        self.machines_in_pools(inventory.as_ref());
        self.routers_with_two_sessions();
        let field = FieldPath::of("spec").field("addresses");
        for (index, (file, document, pool)) in self.pools.iter().enumerate() {
            for (other_file, _, other) in &self.pools[..index] {
                if let Some((mine, theirs)) = pool.overlap(other) {
                    let message = format!(
                        "{mine} shares addresses with {theirs} of AddressPool {} in {}: each address takes one pool",
                        other.name,
                        other_file.display()
                    );
                    let fault = Fault::new(field.clone(), message).of_object(format!("AddressPool {}", pool.name));
                    self.faults.push(fault.in_file(file).at(document.position_of(&field)));
                }
            }
        }
    }

    /// Addresses of machines and routers in pools: a Service that got one would cut that host off.
    fn machines_in_pools(&mut self, inventory: Option<&Inventory>) {
        let living = |machine: &&Arc<Machine>| machine.state != MachineState::Decommissioned;
        let machines = inventory.into_iter().flat_map(Inventory::machines).filter(living).flat_map(|machine| {
            machine.ips().map(move |address| (address, format!("an address of machine {}", machine.id)))
        });
        let routers =
            self.peers.iter().map(|(_, _, peer)| (peer.address, format!("the address of BgpPeer {}", peer.name)));
        let hosts: BTreeMap<_, _> = routers.chain(machines).collect();
        for (file, document, pool) in &self.pools {
            for (index, block) in pool.written.iter().enumerate() {
                let is_given = |address: &IpAddr| block.contains(*address) && pool.contains(*address);
                let mut within = hosts.iter().filter(|(address, _)| is_given(address));
                let Some((address, what)) = within.next() else { continue };
                let more = match within.count() {
                    0 => String::new(),
                    more => format!(", and {more} more such"),
                };
                let message = format!(
                    "{block} holds {address}, {what}{more}: it takes addresses that no host has, or put it into spec.exclude"
                );
                let field = FieldPath::of("spec").field("addresses").entry(index);
                let fault = Fault::new(field.clone(), message).of_object(format!("AddressPool {}", pool.name));
                self.faults.push(fault.in_file(file).at(document.position_of(&field)));
            }
        }
    }

    fn routers_with_two_sessions(&mut self) {
        let field = FieldPath::of("spec").field("address");
        for (index, (file, document, peer)) in self.peers.iter().enumerate() {
            let others = self.peers[..index].iter().map(|(_, _, other)| other);
            for other in others.filter(|other| peer.is_same_router(other) && peer.may_meet(other)) {
                let fault = Fault::new(field.clone(), peer.doubles(other)).of_object(format!("BgpPeer {}", peer.name));
                self.faults.push(fault.in_file(file).at(document.position_of(&field)));
            }
        }
    }
}
