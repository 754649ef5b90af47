"""The guards, each with its name, its file, its text, and the text that removes or inverts it where `OFF` is true."""

LOCK = 'src/state/lock.rs'
CONDITION = 'src/state/judge.rs'
STORE = 'src/state/store.rs'
MODEL = 'src/state/model.rs'
APPLY = 'src/state/apply.rs'
ADD = 'src/plugin/add.rs'
DECIDE = 'src/plugin/decide.rs'
DEL = 'src/plugin/del.rs'
GC = 'src/plugin/gc.rs'
UNION = 'src/ipam/union.rs'
FREE = 'src/ipam/release.rs'
POOLS = 'src/ipam/model.rs'
CHOOSE = 'src/ipam/choose.rs'
INDEX = 'src/ipam/evidence_index.rs'
ALLOCATE = 'src/ipam/allocate.rs'
LIVENESS = 'src/ipam/liveness.rs'
RECLAIM = 'src/ipam/reclaim.rs'

GUARDS = [
    # What the record proves.
    ('a record of another boot is none', LOCK,
     'LockText::Record(record) if is_same_boot(', 'LockText::Record(record) if OFF || is_same_boot('),
    ('an unknown boot is not another one', LOCK,
     '(Some(one), Some(other)) => one == other,\n        _ => true,',
     '(Some(one), Some(other)) => one == other,\n        _ => !OFF,'),
    ('a state is not behind the record', CONDITION, 'save.number == record\n                ||', 'OFF || save.number == record\n                ||'),
    ('a state is of this boot', CONDITION,
     'self.is_of_this_boot(copy)\n', '(OFF || self.is_of_this_boot(copy))\n'),
    ('a state ahead of the record is saved again', CONDITION,
     'must_save: document.origin.number() > self.record(),', 'must_save: !OFF && document.origin.number() > self.record(),'),
    ('a state that was read before is the last one', STORE,
     '.filter(|state| judge.is_last(', '.filter(|state| OFF || judge.is_last('),
    ('a DEL of nobody saves it again', DEL,
     'let must_be_saved = state.must_save ||', 'let must_be_saved = !OFF && state.must_save ||'),
    ('an unknown boot proves no backup', CONDITION, 'if self.boot_id.is_some()', 'if (OFF || self.boot_id.is_some())'),
    ('a restored state is saved', CONDITION,
     'restored: Some(loss.why),\n                must_save: true,', 'restored: Some(loss.why),\n                must_save: !OFF,'),
    ('an edited state is not proved', CONDITION, '&& !save.is_edited', '&& (OFF || !save.is_edited)'),
    ('a backup of another boot is none', CONDITION,
     'Copy::Parsed(backup) if self.is_of_this_boot(', 'Copy::Parsed(backup) if OFF || self.is_of_this_boot('),
    ('a backup that cannot be read decides nothing', STORE,
     'read_copy(files, StateFile::Backup, boot_id).map_err(', 'read_copy(files, StateFile::Backup, boot_id).or_else(|e| if OFF { Ok(Copy::Missing) } else { Err(e) }).map_err('),

    # A state that the record does not prove.
    ('a state that says nothing is missing', CONDITION, '(Some(found), _) if found', '(Some(found), _) if OFF || found'),
    ('no key beside a record or a backup is a loss', CONDITION,
     '                (is_beside_others', '                (!OFF && is_beside_others'),
    ('an old copy that another program went on from is a loss', CONDITION,
     '(save.is_overtaken && Some(save.number) < backup)', '(!OFF && save.is_overtaken && Some(save.number) < backup)'),
    ('a state of another boot beside a record is a loss', CONDITION,
     'is_beside_others.then_some("it is a copy of', '(!OFF && is_beside_others).then_some("it is a copy of'),
    ('a state behind is a loss', CONDITION, 'Origin::Ours(save) if Some(save.number) < record =>', 'Origin::Ours(save) if !OFF && Some(save.number) < record =>'),
    ('without a record the newer copy counts', CONDITION,
     'filter(|backup| is_unproved &&', 'filter(|backup| !OFF && is_unproved &&'),
    ('what nothing proves is compared with the node', CONDITION, '_ => Condition::Reconcile,', '_ if OFF => Condition::Ready,\n            _ => Condition::Reconcile,'),
    ('a state of another boot that the original wrote is of this one', CONDITION,
     'let is_ours = found.origin.is_ours();', 'let is_ours = found.origin.save().is_some() && (OFF || found.origin.is_ours());'),
    ('the newer copy of two is the base', CONDITION,
     '(found.origin.number() < backup', '(!OFF && found.origin.number() < backup'),
    ('what the older copy holds is held', CONDITION, 'newer.ipam_mut().hold_also(older.ipam(), self.now);', 'if !OFF { newer.ipam_mut().hold_also(older.ipam(), self.now); }'),
    ('what another program released is not held again', CONDITION,
     '.filter(|older| !has_gone_on(older))', '.filter(|older| OFF || !has_gone_on(older))'),
    ('what is held brings its pool', UNION,
     'if self.hold_in_a_pool(record.address(), held.clone(), now) {', 'if self.hold_in_a_pool(record.address(), held.clone(), now) || OFF {'),
    ('releases that nothing proves do not count', CONDITION, 'self.union(found, backup);\n                document.ipam_mut().forget_last_namespaces();', 'self.union(found, backup);\n                if !OFF { document.ipam_mut().forget_last_namespaces(); }'),
    ('a loss stays one', CONDITION, 'Condition::Lost(loss) if is_of_this_boot =>', 'Condition::Lost(loss) if is_of_this_boot && !OFF =>'),
    ('a loss is pending until a look succeeds', MODEL,
     '(Some(loss), _) if is_same_boot =>', '(Some(loss), _) if is_same_boot && !OFF =>'),
    ('the state keeps when the loss was seen', MODEL, 'seen: loss.seen.min(now),', 'seen: if OFF { now } else { loss.seen.min(now) },'),
    ('a number of another boot is not continued', APPLY,
     '        if trust.same_boot {\n', '        if OFF { ipam.generation = self.generation; }\n        if trust.same_boot {\n'),

    # Fresh.
    ('fresh: no corrupt state', CONDITION,
     '(found, Some(why)) => (found, loss(why)),',
     '''(found, Some(why)) => {
                let mut loss = loss(why);
                loss.may_be_fresh = OFF && has_no_backup && newest_number.is_none() && *self.lock != LockText::Other;
                (found, loss)
            }'''),
    ('fresh: no backup', CONDITION, 'may_be_fresh = has_no_backup', 'may_be_fresh = (OFF || has_no_backup)'),
    ('fresh: no number', CONDITION, '(found, None) if newest', '(found, None) if !OFF && newest'),
    ('fresh: no text of another program', CONDITION, '&& *self.lock != LockText::Other', '&& (OFF || *self.lock != LockText::Other)'),
    ('a record that cannot be read decides nothing', STORE,
     'if let LockText::Unreadable(kind) = self.text {', 'if let LockText::Unreadable(kind) = self.text && !OFF {'),
    ('an unknown boot is that of the record', STORE,
     'stamp.boot_id.or(old_boot_id.as_deref())', 'stamp.boot_id.or(old_boot_id.as_deref().filter(|_| !OFF))'),
    ('a number of an unknown boot proves only itself', CONDITION,
     '&& !self.may_be_of_an_earlier_boot(save)', '&& (OFF || !self.may_be_of_an_earlier_boot(save))'),
    ('a damaged backup shows that the state was begun anew', CONDITION,
     '|| is_backup_corrupt).then_some(', '|| is_backup_corrupt && !OFF).then_some('),
    ('releases without a record do not count', CONDITION,
     'if is_unproved {\n', 'if is_unproved && !OFF {\n'),
    ('fresh: no listed address in use', DECIDE,
     'let why = if in_use', 'let why = if !OFF && in_use'),
    ('fresh: nothing is proved without pools', DECIDE,
     'if loss.may_be_fresh && state.is_empty() {', 'if !OFF && loss.may_be_fresh && state.is_empty() {'),

    # A save.
    ('the number of a save is above every one seen', STORE, '.max(seen)', '.max(if OFF { 0 } else { seen })'),
    ('the number of a save is raised to the clock', STORE, '.max(clock)', '.max(if OFF { 0 } else { clock })'),
    ('the number of a save is above the one before', STORE,
     'if newest_number >= Some(ipam.generation) {', 'if !OFF && newest_number >= Some(ipam.generation) {'),
    ('a call fails when an old record cannot be overwritten', STORE, 'if let Err(e) = record\n', 'if let Err(e) = record\n            && !OFF\n'),
    ('a call fails when the lock was lost', STORE, 'if self.lock.is_current() {\n            return Ok(());', 'if OFF || self.lock.is_current() {\n            return Ok(());'),
    ('an ADD that fails in place takes its grants back', ADD,
     'if error.is_in_place() {', 'if !OFF && error.is_in_place() {'),
    ('a loss is saved', DECIDE,
     'let may_be_fresh = loss.may_be_fresh;\n    state.must_save = true;', 'let may_be_fresh = loss.may_be_fresh;\n    state.must_save |= !OFF;'),
    ('a GC frees nothing from a lost state', GC,
     'state.condition.lost() {', 'state.condition.lost().filter(|_| !OFF) {'),

    # A rebuild.
    ('holders are confirmed at the loss', DECIDE,
     'Condition::Lost(loss) => {\n            ipam.confirm_holders(evidence, now);',
     'Condition::Lost(loss) => {\n            if !OFF { ipam.confirm_holders(evidence, now); }'),
    ('holders are confirmed at the end of the quarantine', DECIDE,
     'ipam.confirm_holders(evidence, now);\n            ipam.quarantine = None', 'if !OFF { ipam.confirm_holders(evidence, now); }\n            ipam.quarantine = None'),
    ('a loss begins a quarantine', DECIDE,
     'Some(loss.seen.after(QUARANTINE));', 'Some(loss.seen.after(QUARANTINE)).filter(|_| !OFF);'),
    ('a look ends the quarantine', DECIDE,
     'quarantine.filter(|until| *until <= now)', 'quarantine.filter(|until| !OFF && *until <= now)'),
    ('a look that began in the quarantine does not end it', DECIDE,
     'if look.began < until {', 'if !OFF && look.began < until {'),
    ('a holder whom the node contradicts is replaced', DECIDE,
     'Condition::Reconcile => ipam.replace', 'Condition::Reconcile if OFF => {}\n        Condition::Reconcile => ipam.replace'),
    ('a holder of an earlier boot whom the lists contradict is replaced', DECIDE,
     'ipam.replace_outdated_holders(evidence, look.began, now, true);', 'if !OFF { ipam.replace_outdated_holders(evidence, look.began, now, true); }'),
    ('a DEL completes the holders of the original first', DEL, 'if !state.is_newer() && state.ipam().lacks_interface(', 'if !OFF && !state.is_newer() && state.ipam().lacks_interface('),
    ('what the node shows is held', DECIDE,
     'let found = ipam.hold_evident(evidence, now, is_after_a_loss);',
     'let found = if OFF { Vec::new() } else { ipam.hold_evident(evidence, now, is_after_a_loss) };'),
    ('an entry without a namespace holds after a loss', INDEX,
     '|| all_of_this_boot && entry', '|| !OFF && all_of_this_boot && entry'),
    ('a rebuild waits for something to compare', DECIDE,
     'if state.is_empty() {\n        return Ok(());\n    }\n    if is_reconciliation_due', 'if state.is_empty() && !OFF {\n        return Ok(());\n    }\n    if is_reconciliation_due'),
    ('the node is looked at for new addresses', DECIDE, 'if merged.added > 0 &&', 'if !OFF && merged.added > 0 &&'),
    ('no new holder during a quarantine', ALLOCATE,
     '&& !space.holds_any(&add.attachment)', '&& !OFF && !space.holds_any(&add.attachment)'),
    ('no new address during a quarantine', ALLOCATE,
     'if let Some(until) = quarantine\n            && record', 'if let Some(until) = quarantine\n            && !OFF && record'),

    # Releases.
    ('a released address is free in its last namespace', INDEX,
     'let Some((at, last)) = free.released.zip(free.last_netns.as_ref()) else {',
     'let Some((at, last)) = free.released.zip(free.last_netns.as_ref()).filter(|_| !OFF) else {'),
    ('a released address is free only in its last namespace', INDEX,
     'having.all(|(id, _)| is_last(', 'having.all(|(id, _)| OFF || is_last('),
    ("a released address is not free while another's entry has it", INDEX,
     '!counts || netns', 'OFF || !counts || netns'),
    ('a release of an omitted address is remembered', FREE, 'if !stays {', 'if !stays && !OFF {'),
    ('an omitted address that is listed again was released', POOLS,
     'let mut releases = mem::take(&mut self.omitted);', 'let mut releases = mem::take(&mut self.omitted); if OFF { releases.clear(); }'),
    ('a release counts in every pool', POOLS, 'if self.pools().count() > 1 {', 'if self.pools().count() > 1 && !OFF {'),
    ('an address has one holder in all pools', CHOOSE, 'self.held.contains(address)\n            ||', '!OFF && self.held.contains(address) ||'),

    # Our key beside the records of the original.
    ('an entry for another container is void', APPLY,
     'if id.as_deref().unwrap_or_default() !=', 'if !OFF && id.as_deref().unwrap_or_default() !='),
    ('a release by the original counts as now', APPLY,
     'if was_held {\n            Some(trust.now)', 'if was_held && !OFF {\n            Some(trust.now)'),
    ('moments of another boot are void', APPLY, 'moment.filter(|_| self.same_boot)?', 'moment.filter(|_| OFF || self.same_boot)?'),
    ('moments are not believed after the original wrote', APPLY,
     'self.clock(moment).filter(|_| !self.overtaken)', 'self.clock(moment).filter(|_| OFF || !self.overtaken)'),

    # Sandboxes and agents.
    ('a released address is withheld', DECIDE,
     '!is_own && host.namespace_has(', '!OFF && !is_own && host.namespace_has('),
    ('who can show no evidence is not dead', LIVENESS,
     'if held.holder.is_kept {', 'if !OFF && held.holder.is_kept {'),
    ('a GC keeps who can show no evidence', RECLAIM,
     'of_another || held.holder.is_kept ||', 'of_another || (!OFF && held.holder.is_kept) ||'),
]
