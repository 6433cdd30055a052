package hangreport

import (
	"fmt"
	"strings"
)

// withoutReport returns causes for the ranks that have not finalized and did not report.
func (v *view) withoutReport() (out []Cause) {
	type reason struct {
		why     Missing
		process string
	}
	var order []reason
	by := make(map[reason][]int)
	for i := range v.ranks {
		r := &v.ranks[i]
		if r.Report != nil || r.left {
			continue
		}
		why := reason{r.Missing, ""}
		if why.why == "" {
			why.why = NoAnswer
		}
		if why.why == NoAnswer {
			why.process = r.Process
		}
		if by[why] == nil {
			order = append(order, why)
		}
		by[why] = append(by[why], i)
	}
	for _, why := range order {
		ranks := by[why]
		kind, text := v.missing(ranks, why.why, why.process)
		waiting := v.waitingFor(ranks)
		out = append(out, Cause{Kind: kind, Ranks: ranks, Waiting: waiting, Text: named(ranks) + ": " + text + v.wait(waiting)})
	}
	return out
}

// missing returns the reason why ranks have no report. process is the state of their processes, if
// it is known.
func (v *view) missing(ranks []int, why Missing, process string) (Kind, string) {
	it, its, does, has := verb(ranks, "it", "they"), verb(ranks, "its process is", "their processes are"), verb(ranks, "does", "do"), verb(ranks, "has", "have")
	kind, text, end := KindNoAnswer, "", ""
	switch why {
	case Stopped:
		kind, text = KindStopped, its+" stopped by a signal"
		end = "; kill -CONT lets " + verb(ranks, "it", "them") + " go on"
		if pid := v.ranks[ranks[0]].PID; len(ranks) == 1 && pid != 0 {
			end = fmt.Sprintf("; kill -CONT %d lets it go on", pid)
		}
	case HostLost:
		kind, text = KindStopped, verb(ranks, "its host does", "their hosts do")+" not answer"
	case NotStarted:
		kind, text = KindLate, verb(ranks, "its process has", "their processes have")+" not been started"
	case NotInited:
		kind, text = KindLate, it+" "+has+" not called Init"
	case NotConnected:
		text = it + " " + has + " not connected, which Init does in programs that use this library"
	case Foreign:
		text = it + " cannot be asked: " + it + " " + does + " not use this library, or " + has + " not connected"
	case OtherVersion:
		text = it + " cannot be asked: " + verb(ranks, "its program was", "their programs were") +
			" built with another version of mpigo than mpirun-go"
	case Leaving:
		text = verb(ranks, "its connection", "their connections") + " ended while " + it + " " + verb(ranks, "was", "were") +
			" asked: " + it + " " + verb(ranks, "finalizes or ends", "finalize or end")
	case NoReport:
		text = it + " " + verb(ranks, "answers", "answer") + " without a report"
	default:
		text = it + " " + does + " not answer: "
		switch process {
		case "":
			text += "the process is stopped, overloaded, or in a call of C"
		case "running", "sleeping":
			text += its + " " + process + ", and overloaded or in a call of C"
		default:
			text += its + " " + process
		}
	}
	return kind, text + v.process(ranks) + end
}

// process names the processes of ranks, if they are known.
func (v *view) process(ranks []int) string {
	const most = 3
	var names []string
	for _, rank := range ranks {
		switch r := &v.ranks[rank]; {
		case r.PID == 0 && r.Host == "":
		case r.Host == "":
			names = append(names, fmt.Sprintf("pid %d", r.PID))
		case r.PID == 0:
			names = append(names, "on "+r.Host)
		default:
			names = append(names, fmt.Sprintf("pid %d on %s", r.PID, r.Host))
		}
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
