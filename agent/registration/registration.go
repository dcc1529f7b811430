// Package registration registers a machine again at its hub, by the identity that the install script has left on it. It needs no
// registration token and so can give the machine nothing but what it had. It writes nothing: what becomes of the answer is the caller's
// business.
package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/config"
)

const (
	// timeout is above what a hub takes for a registration.
	timeout = 70 * time.Second
	// maxAnswer is far above a connection info.
	maxAnswer = 1 << 20
	// maxMessage is how much is told of what a hub says when it refuses.
	maxMessage = 500
	// storedIdentityHeader comes from hubs that know machines by their stored identity.
	storedIdentityHeader = "X-Drover-Stored-Identity"
	// maxRetryAfter bounds for how long a hub may send a machine away.
	maxRetryAfter = time.Hour
)

// Identity is what a machine calls itself, and what proves it.
type Identity struct {
	ID, Secret string
}

// ErrNoIdentity tells that the machine has nothing to prove itself with.
var ErrNoIdentity = errors.New("this machine was registered without a secret of its own; run the install script again with a registration token")

// ReadIdentity reads the files cattle-id and machine-secret of the folder of the configuration.
func ReadIdentity(dir string) (Identity, error) {
	id, err := read(filepath.Join(dir, "cattle-id"))
	if err != nil {
		return Identity{}, err
	}
	secret, err := read(filepath.Join(dir, "machine-secret"))
	if err != nil {
		return Identity{}, err
	}
	return Identity{ID: id, Secret: secret}, nil
}

func read(path string) (string, error) {
	raw, err := config.ReadSecret(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(raw)) == "" {
		return "", fmt.Errorf("%w (%s is missing)", ErrNoIdentity, path)
	}
	if err != nil {
		return "", fmt.Errorf("reading this machine's identity: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("reading this machine's identity: %s holds characters that cannot be sent", path)
	}
	return text, nil
}

// Refusal is an answer other than a connection.
type Refusal struct {
	// Code is the HTTP status, Message what the hub said in one line.
	Code    int
	Message string
	// OldHub is set where the hub gave no sign that it knows machines by their stored identity.
	OldHub bool
	// RetryAfter is how long the hub asks to wait; 0 where it does not say.
	RetryAfter time.Duration
}

// Final tells that asking again soon is of no use.
func (r *Refusal) Final() bool {
	return r.Code/100 == 4 && r.Code != http.StatusTooManyRequests && r.Code != http.StatusRequestTimeout || r.Code/100 == 3
}

func (r *Refusal) Error() string {
	if r.OldHub && r.Final() {
		return fmt.Sprintf("the hub does not register machines by their stored identity (%d: %s); run the install script again with a registration token", r.Code, r.Message)
	}
	return fmt.Sprintf("the hub refuses (%d): %s", r.Code, r.Message)
}

// Register asks the hub at server for the machine's connection. The client must verify the hub's certificate and must not send
// credentials of its own. An answer that is no connection is a *Refusal.
func Register(ctx context.Context, client *http.Client, server string, identity Identity) (config.Connection, error) {
	address, err := url.JoinPath(server, "/v3/connect/agent")
	if err != nil {
		return config.Connection{}, fmt.Errorf("registering again: the server %q of the connection info is no URL", server)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return config.Connection{}, fmt.Errorf("registering again: %w", err)
	}
	request.Header.Set("X-Cattle-Id", identity.ID)
	request.Header.Set("X-Cattle-Machine-Secret", identity.Secret)
	once := *client
	// A redirect would carry the secret to wherever it leads.
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := once.Do(request)
	if err != nil {
		return config.Connection{}, fmt.Errorf("registering again: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return config.Connection{}, fmt.Errorf("registering again: reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return config.Connection{}, refusal(response, body)
	}
	return decode(body)
}

// decode reads the answer to a registration.
func decode(body []byte) (config.Connection, error) {
	var connection config.Connection
	if len(body) > maxAnswer {
		return connection, fmt.Errorf("registering again: the answer is larger than %d bytes", maxAnswer)
	}
	if json.Unmarshal(body, &connection) != nil {
		return config.Connection{}, errors.New("registering again: the answer is no connection info") // the cause could quote it
	}
	if err := connection.Validate(); err != nil {
		return config.Connection{}, fmt.Errorf("registering again: the answer is no connection info: %w", err)
	}
	return connection, nil
}

func refusal(response *http.Response, body []byte) *Refusal {
	r := &Refusal{Code: response.StatusCode, OldHub: response.Header.Get(storedIdentityHeader) == "", Message: OneLine(body)}
	if r.Message == "" {
		r.Message = http.StatusText(r.Code)
	}
	r.RetryAfter = RetryAfter(response.Header, time.Now())
	return r
}

// OneLine makes what a server says fit for a log: printable, in one line, and not too long.
func OneLine(body []byte) string {
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return ' '
		}
		return c
	}, string(body[:min(len(body), maxMessage)]))
	return strings.Join(strings.Fields(text), " ")
}

// RetryAfter reads the header of that name, in either of its forms; 0 where there is none. It is an hour at most.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
