"""Algorithm 1 of the paper: merges submitted networks into one hybrid model.

The hybrid model is the triple ⟨G, H, O⟩ of the paper: disjoint sub-graphs in one module, and for each of them its own
hyper-parameters, optimizer, criterion and LR scheduler. No edge, gradient or parameter leads from one to another.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from unifiednn_core.engine.submodel import SubModel

# The prefix keeps a sub-model called "forward" or "type" from hiding an attribute of nn.ModuleDict.
_PREFIX = "sub_"


class HybridModel(nn.Module):
    """One module with one `nn.Sequential` per sub-model, in order of arrival. They come and go at any time."""

    def __init__(self, submodels: Iterable[SubModel] = ()) -> None:
        super().__init__()
        self.sequentials = nn.ModuleDict()
        self._submodels: dict[str, SubModel] = {}
        for submodel in submodels:
            self.add(submodel)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sub-models."""
        return tuple(self._submodels)

    @property
    def submodels(self) -> tuple[SubModel, ...]:
        """All sub-models."""
        return tuple(self._submodels.values())

    def submodel(self, name: str) -> SubModel:
        """Return one sub-model; raises `KeyError` for an unknown name."""
        return self._submodels[name]

    def add(self, submodel: SubModel) -> None:
        """Merge one more sub-model; raises `ValueError` for a name or a parameter that the hybrid already holds."""
        name, held = submodel.name, {id(parameter) for parameter in self.parameters()}
        if name in self._submodels:
            raise ValueError(f"the hybrid already holds a sub-model '{name}'; choose another name")
        if any(id(parameter) in held for parameter in submodel.module.parameters()):
            raise ValueError(f"'{name}' shares parameters with another sub-model; give it a network of its own")
        self.sequentials[_PREFIX + name] = nn.Sequential(submodel.module)
        self._submodels[name] = submodel

    def remove(self, name: str) -> SubModel:
        """Take one sub-model out and leave the others untouched; raises `KeyError` for an unknown name."""
        submodel = self._submodels.pop(name)
        del self.sequentials[_PREFIX + name]
        return submodel

    def forward(self, name: str, inputs: Tensor) -> Tensor:
        """Feed `inputs` to one sub-model: the global input leads to it, and its output to the global output."""
        outputs: Tensor = self.sequentials[_PREFIX + name](inputs)
        return outputs
