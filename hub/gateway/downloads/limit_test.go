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

// TestLimiter: a download beyond a limit takes the place of one that is not read, and waits while there is none.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const here, there, elsewhere = "192.0.2.1", "192.0.2.2", "192.0.2.3"
		l, piece := newLimiter(2, 3), make([]byte, minimumRate*60)
		download := func(address string) *testClient {
			c := &testClient{ResponseWriter: httptest.NewRecorder(), read: make(chan struct{}), aborted: make(chan struct{})}
			c.abort = sync.OnceFunc(func() { close(c.aborted) })
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = address + ":1"
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
		refused := func(address string) {
			t.Helper()
			if c := download(address); !response.IsCode(c.result, http.StatusTooManyRequests) {
				t.Errorf("a download of %s beyond the limit: %v", address, c.result)
			}
		}
		replaces := func(address string, slow *testClient) *testClient {
			t.Helper()
			c := download(address)
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

		first, second, third := download(here), download(here), download(there)
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
