"""Results that last: the run folder, its one JSON document, and the schema both are held to."""

from harness.results.document import ResultDocument, ResultInvalid, read_result
from harness.results.run_folder import RunFolder, RunFolderError

__all__ = ["ResultDocument", "ResultInvalid", "RunFolder", "RunFolderError", "read_result"]
