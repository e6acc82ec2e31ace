//! What is said to barriers that the region's log decides alone.

use muster_protocol::global;
use muster_protocol::name::BarrierName;
use muster_protocol::region::{Command, Regional, Reply};
use muster_protocol::replica::Answer;

use super::{Agent, Whose};
use crate::event::{Ask, Asked, Said};
use crate::scene::Scene;
use crate::store::Looked;

impl Agent {
    pub(super) fn say_to_regional(&mut self, scene: &mut Scene, asked: Asked) {
        let Ask::Decide { barrier, command, .. } = &asked.what else { return };
        let command = regional(scene, barrier, (**command).clone());
        self.submit(scene, command, Whose::Regional { asked: Box::new(asked) });
    }

    /// The answer is not awaited: what opens wakes the calls that are held.
    pub(super) fn open_regional(&mut self, scene: &mut Scene, barrier: &BarrierName, command: global::Command) {
        let command = regional(scene, barrier, command);
        self.submit(scene, command, Whose::Fact);
    }

    pub(super) fn regional_said(&self, scene: &mut Scene, asked: &Asked, answer: Answer) {
        let said = match answer {
            Answer::Reply(Reply::Regional(reply)) => Said::Regional(reply),
            Answer::Reply(Reply::Refused(refusal)) => Said::Refused(refusal),
            Answer::Reply(_) | Answer::NotDone(_) => Said::NotDone,
            Answer::Unknown | Answer::Fresh { .. } => Said::Unknown,
        };
        self.say(scene, asked, said);
    }

    /// What gathers in a barrier that the region decides, read anew.
    pub(super) fn look_at_regional(&self, scene: &mut Scene, asked: &Asked, answer: &Answer) {
        let (Ask::Look { barrier, key }, Some(process)) = (&asked.what, &self.process) else { return };
        let said = match answer {
            Answer::Fresh { .. } => {
                Said::Looked(Looked::at(process.replica.region().regional_barrier(barrier), key.as_ref()))
            }
            _ => Said::Unknown,
        };
        self.say(scene, asked, said);
    }
}

fn regional(scene: &Scene, barrier: &BarrierName, command: global::Command) -> Command {
    Command::Regional(Box::new(Regional { barrier: barrier.clone(), command, at: scene.clock() }))
}
