package downloads

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/util/response"
)

// testClient reads a piece whenever the test says so, and nothing any more once the write deadline is in the past.
type testClient struct {
	http.ResponseWriter
	read, aborted chan struct{}
	abort         func()
	result        error
}

func (c *testClient) Write(p []byte) (int, error) {
	select {
	case <-c.read:
		return len(p), nil
	case <-c.aborted:
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *testClient) SetWriteDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) {
		c.abort()
	}
	return nil
}

// begin begins a download of pieces that a client of minimumRate reads in a minute, and waits until it is refused or not read.
func begin(l *limiter, address string) *testClient {
	c := &testClient{ResponseWriter: httptest.NewRecorder(), read: make(chan struct{}), aborted: make(chan struct{})}
	c.abort = sync.OnceFunc(func() { close(c.aborted) })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1"
	piece := make([]byte, minimumRate*60)
	go func() {
		c.result = l.serve(c, r, func(w http.ResponseWriter, _ *http.Request) error {
			for {
				if _, err := w.Write(piece); err != nil {
					return err
				}
			}
		})
	}()
	synctest.Wait()
	return c
}

// TestShareOfAddresses: where all clients read, a download of another address takes the place of the slowest of the address that has most.
func TestShareOfAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const here, there, elsewhere, nowhere = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
		l := newLimiter(3, 3)
		var clients []*testClient
		add := func(address string) {
			clients = append(clients, begin(l, address))
			time.Sleep(time.Second)
		}
		refused := func(address string) {
			t.Helper()
			if c := begin(l, address); !response.IsCode(c.result, http.StatusTooManyRequests) {
				t.Errorf("a download of %s: %v, want it to be refused", address, c.result)
			}
		}
		ended := func(want int) {
			t.Helper()
			synctest.Wait()
			for i, c := range clients {
				if (c.result != nil) != (i < want) {
					t.Errorf("download %d after %d were replaced: %v", i, want, c.result)
				}
			}
		}
		for range 3 {
			add(here)
		}
		refused(here)
		ended(0)
		add(there)
		ended(1)
		refused(there) // the other address would then have less
		refused(here)
		add(elsewhere)
		ended(2)
		refused(nowhere)
		ended(2)
		for _, c := range clients {
			c.abort()
		}
	})
}

// TestLimiter: a download beyond a limit takes the place of one that is not read, and waits while there is none.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const here, there, elsewhere = "192.0.2.1", "192.0.2.2", "192.0.2.3"
		l := newLimiter(2, 3)
		refused := func(address string) {
			t.Helper()
			if c := begin(l, address); !response.IsCode(c.result, http.StatusTooManyRequests) {
				t.Errorf("a download of %s beyond the limit: %v", address, c.result)
			}
		}
		replaces := func(address string, slow *testClient) *testClient {
			t.Helper()
			c := begin(l, address)
			if c.result != nil || !errors.Is(slow.result, os.ErrDeadlineExceeded) {
				t.Errorf("a download of %s while a client does not read: %v, that of the client: %v", address, c.result, slow.result)
			}
			return c
		}
		read := func(clients ...*testClient) {
			time.Sleep(maxBehind * 2 / 3)
			for _, c := range clients {
				c.read <- struct{}{}
			}
			time.Sleep(maxBehind * 2 / 3)
		}

		first, second, third := begin(l, here), begin(l, here), begin(l, there)
		refused(here)
		refused(there)
		read(second, third)
		first = replaces(here, first)
		refused(here)
		refused(there)
		read(first, second)
		third = replaces(elsewhere, third)
		for _, c := range []*testClient{first, second, third} {
			c.abort()
		}
		synctest.Wait()
		if l.count != 0 || len(l.byAddress) != 0 {
			t.Errorf("%d downloads are counted after the last one, of %d addresses", l.count, len(l.byAddress))
		}
	})
}
