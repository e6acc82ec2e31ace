//! What a region's state becomes when its log begins another life: somebody
//! recovered it after its head was lost or set back.

use super::{Region, Timer};
use crate::identity::{Epoch, History};

impl Region {
    /// This state as the first of another life of the log, at an index that
    /// nobody has seen exceeded.
    ///
    /// Who wrote, led and heard sessions in the old life is nobody in the new
    /// one, whose numbers may begin lower: sessions have their time to attach
    /// again.
    #[must_use]
    pub fn anew(mut self, history: History, index: u64) -> Self {
        self.history = history;
        self.index = self.index.max(index);
        self.epoch = Epoch(0);
        self.writers.clear();
        for (id, session) in &mut self.sessions {
            let orphan = Timer::Orphan { session: *id, attach: session.attach };
            session.owner = None;
            let due = self.clock_ms.saturating_add(session.ttl_ms).saturating_add(super::session::MARGIN_MS);
            self.timers.insert((due, orphan));
        }
        self
    }
}
