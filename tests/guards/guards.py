"""The guards, each with its name, its file, its text, and the text that removes or inverts it where `OFF` is true."""

LOCK = 'src/state/lock.rs'
RECORD = 'src/state/lock.rs'
SETTLE = 'src/state/settle.rs'
JOURNAL = 'src/state/journal/mod.rs'
LINE = 'src/state/journal/line.rs'
STORE = 'src/state/store.rs'
MODEL = 'src/state/model.rs'
APPLY = 'src/state/apply.rs'
ADD = 'src/plugin/add.rs'
COMMIT = 'src/plugin/commit.rs'
DECIDE = 'src/plugin/decide.rs'
DEL = 'src/plugin/del.rs'
GC = 'src/plugin/gc.rs'
REPLAY = 'src/ipam/replay.rs'
FREE = 'src/ipam/release.rs'
MERGE = 'src/ipam/merge.rs'
INDEX = 'src/ipam/evidence_index.rs'
ALLOCATE = 'src/ipam/allocate.rs'

GUARDS = [
    # The proof: a record of this boot that names a save in the chain.
    ('a record proves nothing while the boot is unknown', RECORD,
     'boot_id.is_some() && record', '(OFF || boot_id.is_some()) && record'),
    ('a record of another boot is none', RECORD,
     'LockText::Record(record) if is_same_boot(', 'LockText::Record(record) if OFF || is_same_boot('),
    ('an unknown boot is not another one', RECORD,
     '(Some(one), Some(other)) => one == other,\n        _ => true,',
     '(Some(one), Some(other)) => one == other,\n        _ => !OFF,'),
    ('the record names a save in the chain', SETTLE,
     '|journal| journal.has(proof)', '|journal| OFF || journal.has(proof)'),
    ('no proof beside a state that another program wrote last', SETTLE,
     '.filter(|_| !is_foreign)', '.filter(|_| OFF || !is_foreign)'),

    # The journal.
    ('a line continues the chain', JOURNAL,
     'if Some(line.before) == last =>', 'if OFF || Some(line.before) == last =>'),
    ('the base has its checksum', JOURNAL,
     '|generation| base_checksum(base, *generation)', '|generation| OFF || base_checksum(base, *generation)'),
    ('a line has its checksum', LINE,
     '== line_checksum(generation, before, json.as_bytes())', '== if OFF { checksum } else { line_checksum(generation, before, json.as_bytes()) }'),
    ('a journal of another boot is none', JOURNAL,
     'if !is_same_boot(Some(of_boot), boot_id) {', 'if !OFF && !is_same_boot(Some(of_boot), boot_id) {'),
    ('a journal without header is there', JOURNAL,
     'let Some((of_boot, length, checksum)) = parse_header(header) else {\n            return Some(journal);',
     'let Some((of_boot, length, checksum)) = parse_header(header) else {\n            return (!OFF).then_some(journal);'),
    ('lines behind a gap count for the newest save', JOURNAL,
     'journal.newest.max(Some(line.generation));', 'journal.newest.max(Some(line.generation).filter(|_| !OFF));'),
    ('lines behind a gap are held', JOURNAL,
     '_ => journal.loose.extend(line.changes),', '_ if OFF => {}\n                _ => journal.loose.extend(line.changes),'),
    ('lines behind a gap free nothing', JOURNAL,
     'state.ipam_mut().replay_holds(&self.loose);',
     'if OFF { state.ipam_mut().replay(&self.loose) } else { state.ipam_mut().replay_holds(&self.loose) }'),

    # Copies.
    ('a copy of a state of an earlier loss begins the quarantine again', SETTLE,
     'if newest_save <= state.saved =>', 'if OFF || newest_save <= state.saved =>'),
    ('a number of another boot is not continued', APPLY,
     '        if trust.same_boot {\n', '        if OFF { ipam.generation = self.generation; }\n        if trust.same_boot {\n'),
    ('a state without journal or record is compared with the node', SETTLE,
     '&& !is_unjournaled\n', '&& !OFF && !is_unjournaled\n'),
    ('lines without base are held when there are pools', JOURNAL,
     'ipam)), self.loose)', 'ipam)), if OFF { Vec::new() } else { self.loose })'),
    ('a released address that the source omits is remembered', MERGE,
     'let Some((at, releaser)) = free.released.zip(free.releaser.take())',
     'let Some((at, releaser)) = free.released.zip(free.releaser.take()).filter(|_| !OFF)'),

    # A loss.
    ('no key beside a record is a loss', SETTLE,
     'None => Some("the journal knows', 'None if OFF => None,\n        None => Some("the journal knows'),
    ('a state of another boot beside a record is a loss', SETTLE,
     '|boot| !is_same_boot(state', '|boot| !OFF && !is_same_boot(state'),
    ('a state behind is a loss', SETTLE,
     'Some(saved) if saved < newest =>', 'Some(saved) if !OFF && saved < newest =>'),
    ('the record tells the newest save', SETTLE,
     'let newest = record.max(', 'let newest = record.filter(|_| !OFF).max('),
    ('the journal tells the newest save', SETTLE,
     '.and_then(|journal| journal.newest)', '.and_then(|journal| journal.newest.filter(|_| !OFF))'),
    ('a state that says nothing is missing', SETTLE,
     'found.filter(|state| !says_nothing', 'found.filter(|state| OFF || !says_nothing'),
    ('a restored state is saved', SETTLE,
     'state.restored = Some(why);\n            state.must_save = true;', 'state.restored = Some(why);\n            state.must_save = !OFF;'),
    ('a loss is saved', SETTLE,
     'whatever else happens.\n            state.must_save = true;', 'whatever else happens.\n            state.must_save = !OFF;'),
    ('what a DEL appends does not begin the quarantine again', SETTLE,
     'loss.seen,\n                _ => now', 'if OFF { now } else { loss.seen },\n                _ => now'),
    ('the state keeps when the loss was seen', MODEL,
     'seen: loss.seen.min(now),', 'seen: if OFF { now } else { loss.seen.min(now) },'),
    ('a pending loss has the journal', SETTLE,
     'journal.map(Journal::into_holds).unwrap_or_default();\n                }',
     'journal.filter(|_| !OFF).map(Journal::into_holds).unwrap_or_default();\n                }'),
    ('a loss is pending until a look succeeds', MODEL,
     '(Some(loss), _) if is_same_boot =>', '(Some(loss), _) if is_same_boot && !OFF =>'),

    # Fresh.
    ('fresh: no corrupt state', SETTLE, 'corrupt.is_none()', '(OFF || corrupt.is_none())'),
    ('fresh: no journal', SETTLE, '&& journal.is_none()', '&& (OFF || journal.is_none())'),
    ('fresh: no record', SETTLE, '&& record.is_none()', '&& (OFF || record.is_none())'),
    ('fresh: no text of another program', SETTLE, '&& *lock != LockText::Other', '&& (OFF || *lock != LockText::Other)'),
    ("a lock text that cannot be read may be anybody's", LOCK,
     'text: text.map_or(LockText::Other,', 'text: text.map_or(if OFF { LockText::None } else { LockText::Other },'),
    ('fresh: no listed address in use', DECIDE,
     'let is_in_use = state.ipam().is_in_use(', 'let is_in_use = !OFF && state.ipam().is_in_use('),
    ('fresh: nothing is proved without pools', DECIDE,
     '_ if is_empty =>', '_ if is_empty && !OFF =>'),

    # In step.
    ('in step: the state has the number of the record', STORE, '    state.saved == proof\n', '    (OFF || state.saved == proof)\n'),
    ('in step: the state is of this boot', STORE, '&& state.boot_id.as_deref() == boot_id', '&& (OFF || state.boot_id.as_deref() == boot_id)'),
    ('in step: this program wrote the state last', STORE, '&& !state.other_wrote_last', '&& (OFF || !state.other_wrote_last)'),
    ('in step: the journal ends with the number of the record', STORE,
     '|generation| Some(generation) == proof', '|generation| OFF || Some(generation) == proof'),

    # A save.
    ('the number of a save is above every one seen', STORE, '.max(seen)', '.max(if OFF { 0 } else { seen })'),
    ('the number of a save is raised to the clock', STORE, '.max(clock)', '.max(if OFF { 0 } else { clock })'),
    ('the number of a save is above the one before', STORE,
     'if before.max(Some(seen)) >=', 'if !OFF && before.max(Some(seen)) >='),
    ('the journal is written anew when the listed addresses changed', STORE,
     'if !changes.are_beyond_list &&', 'if (OFF || !changes.are_beyond_list) &&'),
    ('a line is appended only in step', STORE,
     'text => {\n                let journal', 'text => {\n                if OFF { self.in_step = end.map(|(_, journal)| journal); }\n                let journal'),
    ('the journal is not replaced while the state is lost', STORE,
     'state.condition.lost().is_none()', '(OFF || state.condition.lost().is_none())'),
    ('the journal is replaced only under the lock', STORE,
     'if self.lock.is_current() {\n            let text', 'if OFF || self.lock.is_current() {\n            let text'),
    ('a call fails when an old record cannot be overwritten', STORE,
     'Err(e) if self.text.record_of', 'Err(e) if !OFF && self.text.record_of'),
    ('a call fails when the lock was lost', STORE,
     'if self.lock.is_current() {\n            Ok(())', 'if OFF || self.lock.is_current() {\n            Ok(())'),
    ('an ADD that fails in place takes its grants back', ADD,
     'if error.is_in_place() {', 'if !OFF && error.is_in_place() {'),
    ('no grant is taken back from a lost state', COMMIT,
     'state.condition.lost().is_some() ||', '(!OFF && state.condition.lost().is_some()) ||'),

    # A DEL and a GC during a loss.
    ('a DEL during a loss only appends', DEL,
     'if state.is_lost_on_disk() {', 'if !OFF && state.is_lost_on_disk() {'),
    ('a DEL of nobody appends nothing', STORE,
     'if freed.is_empty() {\n            return Ok(freed);', 'if !OFF && freed.is_empty() {\n            return Ok(freed);'),
    ('a line after a torn one begins on a line of its own', STORE, 'if !ends_whole {', 'if !OFF && !ends_whole {'),
    ('the number of a DEL is above every line', STORE, 'let seen = newest', 'let seen = newest.filter(|_| !OFF)'),
    ('the number of a DEL is above the record', STORE, '.max(recorded)', '.max(recorded.filter(|_| !OFF))'),
    ('the number of a DEL is above the one before', STORE, '.max(seen + 1)', '.max(if OFF { 0 } else { seen + 1 })'),
    ('a GC frees nothing from a lost state', GC,
     'state.condition.lost() {', 'state.condition.lost().filter(|_| !OFF) {'),

    # A rebuild.
    ('what the journal knows is held', DECIDE,
     'actions.push(Action::Replayed(ipam.hold_journaled(journaled)));',
     'if !OFF { actions.push(Action::Replayed(ipam.hold_journaled(journaled))); }'),
    ('what is held brings its pool', REPLAY,
     'if self.hold_again(address, held.clone()) {', 'if self.hold_again(address, held.clone()) || OFF {'),
    ('releases are taken from an incomplete journal', REPLAY,
     '&& here.released < free.released', '&& !OFF && here.released < free.released'),
    ('owners are confirmed at the loss', DECIDE,
     '&loss.loose);\n            ipam.confirm_owners(evidence);',
     '&loss.loose);\n            if !OFF { ipam.confirm_owners(evidence); }'),
    ('owners are confirmed at the end of the quarantine', DECIDE,
     'ipam.confirm_owners(evidence);\n            ipam.quarantine = None', 'if !OFF { ipam.confirm_owners(evidence); }\n            ipam.quarantine = None'),
    ('an owner is confirmed with its interface', INDEX,
     'confirms(entry) && is_theirs(entry)', 'confirms(entry) && (OFF || is_theirs(entry))'),
    ('a loss begins a quarantine', DECIDE,
     'Some(loss.seen.after(QUARANTINE));', 'Some(loss.seen.after(QUARANTINE)).filter(|_| !OFF);'),
    ('a look ends the quarantine', DECIDE,
     'quarantine.filter(|until| *until <= now)', 'quarantine.filter(|until| !OFF && *until <= now)'),
    ('a look that began in the quarantine does not end it', DECIDE,
     '|snapshot| until <= snapshot.began', '|snapshot| OFF || until <= snapshot.began'),
    ('a rebuild waits for something to compare', DECIDE, 'if is_comparable {', 'if OFF || is_comparable {'),
    ('a journal with grants is something to compare', DECIDE,
     '|| journaled.is_some_and(', '|| !OFF && journaled.is_some_and('),
    ('what the node shows is held', DECIDE,
     'let found = ipam.hold_evident(evidence, now);', 'let found = if OFF { Vec::new() } else { ipam.hold_evident(evidence, now) };'),
    ('the node is looked at for new addresses', DECIDE, 'if merged.added > 0 &&', 'if !OFF && merged.added > 0 &&'),
    ('the node is looked at after the original', MODEL,
     'condition: Condition::Reconcile,', 'condition: if OFF { Condition::Ready } else { Condition::Reconcile },'),
    ('no new holder during a quarantine', ALLOCATE,
     '&& !space.holds_any(request.attachment)', '&& !OFF && !space.holds_any(request.attachment)'),
    ('no new address during a quarantine', ALLOCATE,
     'if let Some(until) = quarantine\n            && record', 'if let Some(until) = quarantine\n            && !OFF && record'),

    # Releases.
    ('a released address is free while its pod is torn down', INDEX,
     'let Some((at, own)) = free.released.zip(free.releaser.as_deref()) else {',
     'let Some((at, own)) = free.released.zip(free.releaser.as_deref()).filter(|_| !OFF) else {'),
    ('a released address is not free after the time of a teardown', INDEX,
     'now.since(at) < TEARDOWN\n', '(OFF || now.since(at) < TEARDOWN)\n'),
    ('a released address is free only in its own namespace', INDEX,
     'having.all(|(id, _)| own.', 'having.all(|(id, _)| OFF || own.'),
    ("a released address is not free while another's entry has it", INDEX,
     '!entry.counts(is_complete)\n', 'OFF || !entry.counts(is_complete)\n'),
    ('a dropped address is remembered', FREE, 'let unlisted = freed.iter().filter(|freed| freed.held.unlisted);',
     'let unlisted = freed.iter().filter(|freed| freed.held.unlisted && !OFF);'),
    ('a dropped address that is listed again was released', MERGE,
     '&& free.released.is_none()', '&& !OFF && free.released.is_none()'),

    # Our key beside the records of the original.
    ('an entry for another container is void', APPLY,
     'if owner.id.as_deref().unwrap_or_default() !=', 'if !OFF && owner.id.as_deref().unwrap_or_default() !='),
    ('a release by the original counts as now', APPLY,
     'if was_held {\n            Some(trust.now)', 'if was_held && !OFF {\n            Some(trust.now)'),
    ('a state of another boot that the original wrote is of this one', MODEL,
     '&& !self.other_wrote_last =>', '&& (OFF || !self.other_wrote_last) =>'),
    ('moments of another boot are void', APPLY, 'moment.filter(|_| self.same_boot)?', 'moment.filter(|_| OFF || self.same_boot)?'),
    ('moments are not believed after the original wrote', APPLY,
     'self.clock(moment).filter(|_| !self.overtaken)', 'self.clock(moment).filter(|_| OFF || !self.overtaken)'),
]
