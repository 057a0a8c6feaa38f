"""The lit test format for the GoogleTest programs of a build."""

import os

import lit.formats
import lit.Test
import lit.util


class DeclaredPrograms(lit.formats.GoogleTest):
    """Runs the programs that this build declares, and no others.

    A program that an older build left behind does not count. One that is
    missing, dies while it lists its tests or has none fails.
    """

    def __init__(self, programs):
        super().__init__(".", "")
        self.programs = programs

    def getTestsInDirectory(self, testSuite, path_in_suite, litConfig, localConfig):
        if path_in_suite:
            return
        for name in self.programs:
            program = os.path.join(testSuite.source_root, name)
            problem = None
            cases = 0
            if not os.access(program, os.X_OK):
                problem = "it is not built"
            else:
                cases = self.get_num_tests(program, litConfig, localConfig)
                if cases is None:
                    problem = "it does not list its tests"
                elif cases == 0:
                    problem = "it has no tests"
            if problem:
                test = lit.Test.Test(testSuite, (name, "discovery"), localConfig)
                test.problem = f"{program}: {problem}"
                yield test
                continue
            shards = min(cases, lit.util.usable_core_count())
            for shard in range(shards):
                yield lit.Test.Test(
                    testSuite,
                    (name, str(shard), str(shards)),
                    localConfig,
                    file_path=program,
                    gtest_json_file=f"{program}-{os.getpid()}-{shard}.json",
                )

    def execute(self, test, litConfig):
        if test.gtest_json_file is None:
            return lit.Test.FAIL, test.problem
        return super().execute(test, litConfig)
