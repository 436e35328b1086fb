"""The fields of a selection: by what, and for a review what is to happen with it.

by = pattern | tool | file | older | thinking | repeated      what is selected, see `core.selection`
what = VALUE                                                  the pattern, the tool, the path, or the entry's id
do = approve | reject | add                                   the decision about what is selected
seen, mark = …                                                the version of the review, and the preparation of the run
leaf = ID                                                     without a run: the branch, see `BranchSelectionForm`
undecided, addable = NUMBER                                   how much the page offered to decide, and to add
"""

from __future__ import annotations

from typing import Final

from django import forms

from compaction_app.core.decisions import Kind
from compaction_app.core.selection import Criterion, SelectionKind

NOT_SELECTED: Final = "Nothing was selected."
VALUE_CHARACTERS: Final = 4_096


class SelectionForm(forms.Form):
    """By what something is selected."""

    by = forms.ChoiceField(choices=[(kind.value, kind.value) for kind in SelectionKind])
    what = forms.CharField(required=False, max_length=VALUE_CHARACTERS, strip=False)

    @property
    def criterion(self) -> Criterion:
        return Criterion(SelectionKind(self.cleaned_data["by"]), self.cleaned_data["what"])


class BranchSelectionForm(SelectionForm):
    """A selection of a branch that is to be planned; an empty `leaf` is the file's last entry."""

    leaf = forms.CharField(required=False, strip=False)
    addable = forms.IntegerField(min_value=1, max_value=999_999_999)


class SelectionDecisionForm(SelectionForm):
    """What is to happen with a selection in a review."""

    do = forms.ChoiceField(choices=[(kind.value, kind.value) for kind in (Kind.APPROVE, Kind.REJECT, Kind.ADD)])
    seen = forms.IntegerField(min_value=0, max_value=999_999_999)
    mark = forms.CharField()
    undecided = forms.IntegerField(min_value=0, max_value=999_999_999)
    addable = forms.IntegerField(min_value=0, max_value=999_999_999)

    @property
    def kind(self) -> Kind:
        return Kind(self.cleaned_data["do"])

    @property
    def offered(self) -> int:
        """How much the pressed button said that it decides."""
        offered: int = self.cleaned_data["addable" if self.kind is Kind.ADD else "undecided"]
        return offered
