"""Loads a checkpoint into a model of PyTorch through the model's own weight loader, as engines have it.

Tensors without data are passed to the loader. Views of them keep their offsets, sizes and strides, so each copy into
a parameter tells which elements of which stored tensor go where. All ranks' copies become one load: each stored byte
is read once for the group, only what a rank keeps is sent to it, and nothing is in memory twice. No placement rules
are needed.

    with safeshuffle.open(path, group, device) as session:
        report = safeshuffle.capture.load(session, model, model.load_weights)

Tensors that the loader computes with or keeps, instead of copying parts of them, are loaded whole, and it is called
once more. Before that, what it has changed of tensors and of modules is as it was; it must then do the same as before.
It may use threads, but not such that were there before it was called: what these copy is loaded whole.
"""

import json
import logging
import re
import types

from . import errors
from ._recorder import Recorder, Watch, held_by, still_there

_log = logging.getLogger("safeshuffle")
_MOST_ATTEMPTS = 16


def load(session, model, load_weights, names=None):
    """Captures and loads; returns what `Captured.load` returns. Collective."""
    return Captured(session, model, load_weights, names).load(session)


class Captured:
    """What a model's weight loader copies where, on this rank. Can be loaded any number of times, also from other
    checkpoints of the same tensors (`Session.reopen`), as long as the model's parameters stay where they are.

    bindings: the copies, a list of Binding
    taken: what is copied, whether into a parameter or not: names of stored tensors, and offset, sizes and strides
    computed: names of the stored tensors that are loaded whole, the same on all ranks
    loaded: names that `load_weights` returned, if it did
    """

    def __init__(self, session, model, load_weights, names=None):
        """Calls `load_weights` with an iterator of (name, tensor without data), until no tensor is left whose values
        it needs. Collective.

        session: opened with tp_plan="replicate"
        names: of the stored tensors to be loaded; None: all
        """
        self._model, self._load_weights = model, load_weights
        self.names = session.offset_keys() if names is None else list(names)
        self.bindings, self.taken, self.loaded, self.computed = [], [], set(), []
        self._last = None  # what the last call has changed of tensors, until it counts
        self._attributes = None  # of the modules, before it
        self._watch = Watch()
        self._made = []  # what calls have made: weak references, and names
        self._meta_before = _count_meta(model)
        self._leave_out(session, self._attempt(session))

    def load(self, session):
        """Loads; returns the report of the captured part (docs/report.md), with "computed", the names of the tensors
        that were loaded whole, and "captured_share" of the bytes. Collective."""
        while self.computed:
            expected = self._last.touched if self._last else set()
            recorder = self._call_with_values(session)
            earlier = still_there(self._made)
            self.bindings, self.taken = self._found_by(recorder), recorder.taken
            if earlier:
                unfit = f"keeps '{sorted(earlier)[0]}' of an earlier call"
            elif missed := expected - recorder.touched:
                unfit = f"does not take '{sorted(missed)[0]}' when it is called once more"
            else:
                unfit = ""
            # Of what is copied before something computed has the same place, or is computed from it.
            if not self._leave_out(session, recorder.computed, unfit):
                break
        self._last, self._attributes, self._made = None, None, []
        is_filled = _count_meta(self._model) <= self._meta_before
        self._leave_out(session, (), "" if is_filled else "leaves parameters without data")
        report = session.load_bindings(self.bindings)
        whole, total = (sum(map(session.nbytes, names)) for names in (self.computed, self.names))
        report["computed"] = self.computed
        report["captured_share"] = 1 - whole / total if total else 1.0
        _log.info("captured %.1f %% of the bytes; loaded whole: %s", 100 * report["captured_share"], self.computed)
        return report

    def _call(self, weights):
        """Has the loader called with the weights that a recorder makes; what the last call has changed is undone."""
        if self._last:
            self._last.undo()
            _restore(self._attributes)
        else:
            self._attributes = _attributes_of(self._model)
        recorder = self._last = Recorder()
        with self._watch.showing(recorder):
            self.loaded = _names_in(self._load_weights(weights(recorder)))
        return recorder

    def _call_with_values(self, session):
        """Of the tensors that are computed with. Raises on all ranks if the loader of any fails."""
        weights = []
        try:
            recorder = self._call(lambda recorder: weights.append(self._mixed(session, recorder)) or weights[0])
        except errors.Error:  # on all ranks
            raise
        except Exception as error:  # noqa: BLE001 - of the loader
            self._agree(session, unfit=f"failed: {error!r}")
        for _ in weights[0]:  # what this rank's loader did not take, those of others may
            pass
        return recorder

    def _found_by(self, recorder):
        """Bindings; what the loader keeps counts as computed."""
        bindings = recorder.copies_into(self._model)
        kept = recorder.release()
        recorder.computed |= still_there(kept)
        self._made += kept
        return [each for each in bindings if each.tensor not in recorder.computed]

    def _leave_out(self, session, computed, unfit=""):
        """What any rank computes with is not captured on any; returns whether that changes anything. Collective."""
        before, computed = self.computed, self._agree(session, computed, unfit).union(self.computed)
        self.bindings = [copy for copy in self.bindings if copy.tensor not in computed]
        self.computed = sorted(computed)
        return self.computed != before

    def _agree(self, session, computed=(), unfit=""):
        """What the loaders of all ranks compute with. Raises on all if that of any is unfit. Collective."""
        mine = json.dumps([sorted(computed), unfit])
        gathered = [json.loads(each) for each in session.all_gather(mine.encode())]
        for _, reason in gathered:
            if reason:
                raise errors.ConfigError(f"the weight loader {reason}")
        return set().union(*(names for names, _ in gathered))

    def _mixed(self, session, recorder, group_bytes=256 << 20):
        """All tensors in their order, since loaders may go by which names there are: those that are computed with have
        values."""
        computed, waiting, size = set(self.computed), [], 0
        for name in [*self.names, None]:
            if waiting and (name is None or size >= group_bytes):
                self._agree(session)  # that no loader has failed
                whole = [each for each in waiting if each in computed]
                largest = max((session.nbytes(each) for each in whole), default=0)
                values = dict(session.stream(whole, max(group_bytes, 2 * largest), alive=len(whole) + 1))
                for each in waiting:
                    yield recorder.given(each, values.pop(each)) if each in values else recorder.stand_in(session, each)
                waiting, size = [], 0
            if name is not None:
                waiting.append(name)
                size += session.nbytes(name) if name in computed else 0

    def _attempt(self, session):
        """Notes the copies, and what is taken; returns the names of the tensors that are computed with."""
        computed = set()
        for _ in range(_MOST_ATTEMPTS):
            names = [name for name in self.names if name not in computed]
            try:
                recorder = self._call(lambda recorder, names=names: recorder.stand_ins(session, names))
            except Exception as error:  # noqa: BLE001 - whatever a loader does with a tensor that has no values
                needed = self._last.computed or {self._last.last}
                _log.debug("the loader needs the values of %s: %s", needed, str(error))
                computed |= self._alike(needed)
                self._made += self._last.release()
                continue
            self.bindings, self.taken = self._found_by(recorder), recorder.taken
            return computed | recorder.computed
        return set(self.names)

    def _alike(self, names):
        """With those of other layers and experts."""
        patterns = {re.sub(r"\d+", "#", name) for name in names if name}
        alike = {name for name in self.names if re.sub(r"\d+", "#", name) in patterns}
        return alike or set(self.names)


def _attributes_of(model):
    """Dicts and lists, and what is in them."""
    modules = [vars(module) for module in getattr(model, "modules", tuple)()]
    inside = [each for module in modules for each in module.values() if type(each) in (dict, list)]
    return [(each, each.copy()) for each in modules + inside]


def _restore(attributes):
    for each, before in attributes:
        if isinstance(each, list):
            each[:] = before
        else:
            for name in each.keys() - before.keys():
                del each[name]
            each.update(before)


def _count_meta(model):
    return sum(tensor.is_meta for tensor in held_by(model))


def _names_in(returned):
    """Of what a loader returns, which may be anything."""
    if isinstance(returned, types.GeneratorType):
        returned = list(returned)
    is_names = isinstance(returned, (set, frozenset, list, tuple)) and all(isinstance(each, str) for each in returned)
    return set(returned) if is_names else set()
