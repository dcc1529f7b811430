package tunnel

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorilla/websocket"
)

func TestDescribe(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&websocket.CloseError{Code: websocket.CloseGoingAway, Text: "this replica stops"}, "the hub asks to connect again: this replica stops"},
		{&websocket.CloseError{Code: websocket.CloseGoingAway}, "the hub asks to connect again"},
		{&websocket.CloseError{Code: websocket.ClosePolicyViolation, Text: "the TunnelAgent\nwas deleted"}, "the hub closed it (1008): the TunnelAgent was deleted"},
		{&websocket.CloseError{Code: websocket.CloseAbnormalClosure, Text: "unexpected EOF"}, "the connection to the hub broke off"},
		{fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded), "nothing came from the hub, or went to it, for 15s"},
		{errors.New("connection reset by peer"), "connection reset by peer"},
	} {
		if got := describe(test.err); got != test.want {
			t.Errorf("%v is described as %q, want %q", test.err, got, test.want)
		}
	}
}
