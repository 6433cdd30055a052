// Package jobsocket lets a user ask about a running job from another terminal. The launcher, or
// rank 0 of a job that another launcher has started, listens on a Unix socket in a directory of the
// user's own. The socket's name is the job's name.
//
// Both directions carry JSON values, one a line. The user's command sends a Request, and gets one
// Answer; any number of them follow each other.
//
//	command                                  job
//	{"v":2,"want":"report"} →
//	                     ← {"v":2,"job":{"name":"mpigo-17-…", …},"members":[{"rank":0}, …]}
//
// Only processes of the user, or of root, get an answer: the directory is closed to others, and the
// kernel reports the user of each connection.
package jobsocket
