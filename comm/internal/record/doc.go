// Package record sums up the times of a rank's calls, which package calls measures, by the line of
// the program, and writes them to a file (internal/profile).
//
// The user's line is in the innermost function on the stack outside this library. Only timed calls
// look it up, and a known program counter costs one look-up in a map.
package record
