package main

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlySignalToDoctorInterruptsIt(t *testing.T) {
	wasInterrupted := catchInterrupts()
	require.NoError(t, wasInterrupted(), "a rank that a signal kills is no interrupt")
	wasInterrupted = catchInterrupts()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	var err error
	require.Eventually(t, func() bool { err = wasInterrupted(); return err != nil }, time.Minute, time.Millisecond)
	var s *statusError
	require.True(t, errors.As(err, &s))
	assert.Equal(t, 128+int(syscall.SIGTERM), s.status)
}
