// Package doctor finds what keeps jobs from running, or from running fast, on the hosts of a job:
// limits of processes, machines, transports, and the network between the hosts.
//
// mpirun-go doctor runs a job of one rank on each host. The rank is mpirun-go itself, in the mode
// RankArg, so it sees what a rank of the user's program would see (RunRank). It
//
//  1. collects Facts of its host, and listens on the addresses that ranks would use over TCP;
//  2. publishes both by PMI, and waits for the other ranks;
//  3. connects from each of its addresses to each address of the others that ranks would pair with
//     it, asks for the time, and sends more than a packet holds (Probe).
//
// It writes what it finds to standard output, a JSON object on each line. Every step has a time
// limit. The launcher reads the lines (Reader) and judges them: Judge has one table of checks for
// the facts of a host, and one for what lies between hosts. Collecting and judging are separate, so
// tests can judge facts of machines that do not exist.
package doctor
