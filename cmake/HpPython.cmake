# The Python interpreter that runs lit and the Python side of the tests: sets hp_python.
#
# HP_PYTHON names one. Without it: the project's virtual environment (.venv), the virtual environment around TORCH_DIR,
# or the python3 on PATH.

set(HP_PYTHON "" CACHE FILEPATH "The Python that has what requirements.txt lists")

cmake_path(ABSOLUTE_PATH TORCH_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE _hp_environment)
string(REGEX REPLACE "/lib/python3[.0-9]*/site-packages/torch/*$" "" _hp_environment "${_hp_environment}")
if(HP_PYTHON)
  set(hp_python ${HP_PYTHON})
elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(hp_python ${CMAKE_SOURCE_DIR}/.venv/bin/python)
elseif(TORCH_DIR AND EXISTS ${_hp_environment}/bin/python)
  set(hp_python ${_hp_environment}/bin/python)
else()
  set(hp_python python3)
endif()
message(STATUS "Python: ${hp_python}")
