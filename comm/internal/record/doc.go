// Package record keeps what package calls times of a rank's calls, by the line of the program, and
// writes it to a file (internal/profile).
//
// The user's line is the innermost function on the stack that is not of this library. It is looked
// up only for calls that are timed, and a program counter that was seen before costs one look-up in
// a map.
package record
