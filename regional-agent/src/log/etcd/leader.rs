//! Election of the region's leader: the key `leader` under the agent's lease,
//! created only if absent. Its create revision is the epoch, so epochs grow.

use etcd_client::{Compare, CompareOp, DeleteOptions, KeyValue, PutOptions, Txn, TxnOp};
use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::mutant;

use super::Shared;
use super::append::revision;
use super::origin::{all_but, first_keys};
use super::requests::Purpose;
use super::verdict::{Verdict, is_lease_gone};
use crate::log::LogError;

impl Shared {
    pub(super) async fn stand(&self, writer: Writer) -> Result<Option<Epoch>, LogError> {
        // Only the process that registered a writer knows the lease under it.
        let Some(lease) = self.lease_of(writer) else { return Ok(None) };
        let (leader, agent) = (self.keys.leader(), lease.agent_key.as_str());
        let under_lease = Some(PutOptions::new().with_lease(lease.id));
        let look = [TxnOp::get(leader.as_str(), None), TxnOp::get(agent, None)];
        let txn = Txn::new()
            .when(all_but([
                (mutant!(LeadsOver), Compare::create_revision(leader.as_str(), CompareOp::Equal, 0)),
                (mutant!(LeadsUnregistered), Compare::create_revision(agent, CompareOp::Equal, revision(writer.0))),
            ]))
            .and_then([TxnOp::put(leader.as_str(), writer.to_string(), under_lease)])
            .or_else(look.clone());
        let stood = match self.endpoints.txn(Purpose::Leader, "stand for election", txn).await {
            // Refused for what it might put; who leads already still does.
            Err(error) if error.verdict == Verdict::Full => {
                // Never met, so that it comes out as a lost election does.
                let never = Compare::version(agent, CompareOp::Less, 0);
                let txn = Txn::new().when([never]).or_else(look);
                self.endpoints.txn(Purpose::Leader, "look who leads", txn).await
            }
            stood => stood,
        };
        let answer = match stood {
            Err(error) if is_lease_gone(&error.error) => {
                lease.lose();
                return Ok(None);
            }
            answer => answer?,
        };
        if answer.succeeded() {
            fail::fail_point!("log.lead.after");
            return Ok(answer.header().map(|header| Epoch(header.revision().unsigned_abs())));
        }
        let [leader, agent]: [Option<KeyValue>; 2] = first_keys(&answer);
        if agent.is_none_or(|agent| agent.create_revision() != revision(writer.0)) {
            lease.lose();
            return Ok(None);
        }
        let mine = leader.filter(|leader| leader.value() == writer.to_string().as_bytes());
        Ok(mine.map(|leader| Epoch(leader.create_revision().unsigned_abs())))
    }

    pub(super) async fn step_down(&self, epoch: Epoch) -> Result<(), LogError> {
        let delete = TxnOp::delete(self.keys.leader(), None::<DeleteOptions>);
        let txn = Txn::new().when(all_but([(mutant!(ResignsForOthers), self.leads(epoch))])).and_then([delete]);
        self.endpoints.txn(Purpose::Leader, "step down", txn).await?;
        Ok(())
    }
}
