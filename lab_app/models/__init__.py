"""The rows of the lab: experiments, and the costs of compactions."""

from .experiments import Experiment as Experiment
from .experiments import MeasuredSession as MeasuredSession
from .hindsight import CompactionCost as CompactionCost
from .hindsight import HindsightCheck as HindsightCheck
