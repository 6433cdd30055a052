package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestVerdicts: each status by its name, as the table of reactions has it.
func TestVerdicts(t *testing.T) {
	const none, local, remote, both = btl.SideNone, btl.SideLocal, btl.SideRemote, btl.SideBoth
	want := map[string]result{
		"SUCCESS":            {goesOn: true},
		"LOC_LEN_ERR":        {class: btl.ClassUsage, side: none},
		"LOC_QP_OP_ERR":      {class: btl.ClassUsage, side: none},
		"LOC_EEC_OP_ERR":     {class: btl.ClassDevice, side: local},
		"LOC_PROT_ERR":       {class: btl.ClassUsage, side: none},
		"WR_FLUSH_ERR":       {class: btl.ClassFlushed, side: none},
		"MW_BIND_ERR":        {class: btl.ClassUsage, side: none},
		"BAD_RESP_ERR":       {class: btl.ClassProtocol, side: remote},
		"LOC_ACCESS_ERR":     {class: btl.ClassUsage, side: none},
		"REM_INV_REQ_ERR":    {class: btl.ClassUsage, side: none},
		"REM_ACCESS_ERR":     {class: btl.ClassUsage, side: none},
		"REM_OP_ERR":         {class: btl.ClassDevice, side: remote},
		"RETRY_EXC_ERR":      {class: btl.ClassPath, side: both},
		"RNR_RETRY_EXC_ERR":  {class: btl.ClassPath, side: remote},
		"LOC_RDD_VIOL_ERR":   {class: btl.ClassDevice, side: local},
		"REM_INV_RD_REQ_ERR": {class: btl.ClassDevice, side: local},
		"REM_ABORT_ERR":      {goesOn: true},
		"INV_EECN_ERR":       {class: btl.ClassDevice, side: local},
		"INV_EEC_STATE_ERR":  {class: btl.ClassDevice, side: local},
		"FATAL_ERR":          {class: btl.ClassDevice, side: local},
		"RESP_TIMEOUT_ERR":   {class: btl.ClassDevice, side: local},
		"GENERAL_ERR":        {class: btl.ClassDevice, side: local},
	}
	require.Len(t, want, verbs.StatusCount)
	for _, info := range verbs.Statuses() {
		t.Run(info.Name, func(t *testing.T) {
			w, ok := want[info.Name]
			require.True(t, ok)
			require.Equal(t, w, resultOf(info.Status, true))
			if info.Name == "LOC_QP_OP_ERR" {
				w = result{class: btl.ClassPath, side: local}
			}
			require.Equal(t, w, resultOf(info.Status, false), "with the port down")
		})
	}
	require.Equal(t, btl.ClassDevice, resultOf(verbs.StatusCount, true).class)
}

// TestResponses: each event by its name.
func TestResponses(t *testing.T) {
	want := map[string]response{
		"CQ_ERR":              {failRail, btl.ClassDevice, btl.SideLocal},
		"QP_FATAL":            {failEndpoint, btl.ClassDevice, btl.SideLocal},
		"QP_REQ_ERR":          {failEndpoint, btl.ClassUsage, btl.SideNone},
		"QP_ACCESS_ERR":       {failEndpoint, btl.ClassUsage, btl.SideNone},
		"COMM_EST":            {reaction: established},
		"SQ_DRAINED":          {},
		"PATH_MIG":            {},
		"PATH_MIG_ERR":        {},
		"DEVICE_FATAL":        {failDevice, btl.ClassDevice, btl.SideLocal},
		"PORT_ACTIVE":         {reaction: portUp},
		"PORT_ERR":            {portDown, btl.ClassPath, btl.SideLocal},
		"LID_CHANGE":          {lookAgain, btl.ClassPath, btl.SideNone},
		"PKEY_CHANGE":         {lookAgain, btl.ClassPath, btl.SideNone},
		"SM_CHANGE":           {lookAgain, btl.ClassPath, btl.SideNone},
		"SRQ_ERR":             {failRail, btl.ClassDevice, btl.SideLocal},
		"SRQ_LIMIT_REACHED":   {},
		"QP_LAST_WQE_REACHED": {},
		"CLIENT_REREGISTER":   {lookAgain, btl.ClassPath, btl.SideNone},
		"GID_CHANGE":          {lookAgain, btl.ClassPath, btl.SideNone},
	}
	require.Len(t, want, verbs.EventCount)
	for _, info := range verbs.EventTypes() {
		t.Run(info.Name, func(t *testing.T) {
			w, ok := want[info.Name]
			require.True(t, ok)
			require.Equal(t, w, respond(info.Type))
		})
	}
	require.Equal(t, response{}, respond(verbs.EventCount))
}
