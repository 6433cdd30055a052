#!/bin/sh
# An agent for mpirun-go that reaches pods by kubectl: kubexec.sh HOST LINE.
# HOST is the name of a pod, or begins with it, as solver-worker-0.solver-worker does.
host=$1
shift
exec "${KUBECTL:-kubectl}" exec -i "${host%%.*}" -- /bin/sh -c "$*"
