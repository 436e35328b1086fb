"""The rows of the lab: experiments, and the costs of compactions."""

from .experiments import Experiment as Experiment, MeasuredSession as MeasuredSession
from .hindsight import CompactionCost as CompactionCost, HindsightCheck as HindsightCheck
