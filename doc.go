// Package mpigo is the root of an MPI-like runtime library and contains no code. Programs import
// the package comm, and the command mpirun-go starts them. See README.md and ARCHITECTURE.md.
package mpigo
