"""The rows of the index."""

from .sessions import DUE as DUE
from .sessions import HAS_ENTRIES as HAS_ENTRIES
from .sessions import INDEXED_FIELDS as INDEXED_FIELDS
from .sessions import SESSION_ROUTE as SESSION_ROUTE
from .sessions import UNQUOTED as UNQUOTED
from .sessions import WRITTEN_BY_OTHERS as WRITTEN_BY_OTHERS
from .sessions import ChosenWindow as ChosenWindow
from .sessions import Entry as Entry
from .sessions import Root as Root
from .sessions import Session as Session
from .sessions import SessionQuerySet as SessionQuerySet
from .sessions import insert_statement as insert_statement
from .sessions import live as live
from .sessions import live_since as live_since
