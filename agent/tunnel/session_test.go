package tunnel

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorilla/websocket"
)

func TestCloseReason(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&websocket.CloseError{Code: websocket.CloseGoingAway, Text: "this replica stops"}, "the hub asked to reconnect: this replica stops"},
		{&websocket.CloseError{Code: websocket.CloseGoingAway}, "the hub asked to reconnect"},
		{&websocket.CloseError{Code: websocket.ClosePolicyViolation, Text: "the TunnelAgent\nwas deleted"},
			"the hub closed the session (1008): the TunnelAgent was deleted"},
		{&websocket.CloseError{Code: websocket.CloseAbnormalClosure, Text: "unexpected EOF"}, "connection to the hub lost"},
		{fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded), "no traffic from or to the hub for 15s"},
		{errors.New("connection reset by peer"), "connection reset by peer"},
	} {
		if got := closeReason(test.err); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
}
