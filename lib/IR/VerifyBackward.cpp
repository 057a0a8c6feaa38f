#include "VerifierState.h"
using namespace hp;
void hp::verifyBackward(VerifierState &, const BlockPlace &) {}
