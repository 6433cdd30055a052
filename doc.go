// Package mpigo is the root of an MPI-like runtime library. It holds no code: programs
// import the package comm and are started by the command mpirun-go. See README.md and
// ARCHITECTURE.md.
package mpigo
