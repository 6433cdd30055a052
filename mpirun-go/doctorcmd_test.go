package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlySignalToDoctorInterruptsIt(t *testing.T) {
	wasInterrupted := catchInterrupts()
	require.NoError(t, wasInterrupted(), "a rank that a signal kills is no interrupt")
	wasInterrupted = catchInterrupts()
	delivered := make(chan os.Signal, 1)
	signal.Notify(delivered, syscall.SIGTERM)
	defer signal.Stop(delivered)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-delivered // or it may come when nobody catches it any more, and end the tests
	err := wasInterrupted()
	var s *statusError
	require.True(t, errors.As(err, &s))
	assert.Equal(t, 128+int(syscall.SIGTERM), s.status)
}
