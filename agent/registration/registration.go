// Package registration registers a machine again with its hub, with the identity that the install script has stored. It needs no
// registration token, and the hub returns nothing but the machine's own connection info. The package writes nothing: the caller stores the
// connection info.
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
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/agent/retry"
)

const (
	// timeout is longer than a hub takes for a registration.
	timeout = 70 * time.Second
	// maxResponseBytes is larger than any connection info.
	maxResponseBytes = 1 << 20
	// storedIdentityHeader is in responses of hubs that support stored identities.
	storedIdentityHeader = "X-Drover-Stored-Identity"
)

// Identity is the ID of a machine and the secret that proves it.
type Identity struct {
	// ID is the content of cattle-id.
	ID string
	// Secret is the content of machine-secret.
	Secret string
}

// ErrNoIdentity means that the machine has no ID, or no secret that proves it.
var ErrNoIdentity = errors.New(
	"this machine was registered without a secret of its own; run the install script again with a registration token")

// ReadIdentity reads the files cattle-id and machine-secret in dir, the directory of the configuration. The error is ErrNoIdentity if one
// is missing or empty.
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
		return "", fmt.Errorf("reading this machine's identity: %s contains characters that are invalid in a header", path)
	}
	return text, nil
}

// StatusError is a response of the hub with another HTTP status than the expected one.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is the body in one line, or the text of the status if the body is empty.
	Message string
	// RetryAfter is how long the hub asks to wait, one hour at most; 0 if it does not.
	RetryAfter time.Duration
	// NoStoredIdentity is true for the response of a hub that does not support stored identities. Only Register sets it.
	NoStoredIdentity bool
}

// NewStatusError returns the error for a response with this body.
func NewStatusError(code int, header http.Header, body []byte) *StatusError {
	e := &StatusError{Code: code, Message: printable.Line(string(body)), RetryAfter: retry.After(header, time.Now())}
	if e.Message == "" {
		e.Message = http.StatusText(code)
	}
	return e
}

// Permanent is true if the same request will not succeed soon: redirects and client errors other than 408, 425 and 429.
func (e *StatusError) Permanent() bool {
	return e.Code >= http.StatusMultipleChoices && !retry.Temporary(e.Code)
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.NoStoredIdentity && e.Permanent() {
		return fmt.Sprintf("the hub does not support stored identities (HTTP %d: %s); run the install script again with a registration token",
			e.Code, e.Message)
	}
	return fmt.Sprintf("the hub returned HTTP %d: %s", e.Code, e.Message)
}

// Register requests the machine's connection info from the hub at the URL server. The client must verify the hub's certificate and must not
// add credentials. A response without connection info is a *StatusError.
func Register(ctx context.Context, client *http.Client, server string, identity Identity) (config.Connection, error) {
	connection, err := register(ctx, client, server, identity)
	if status := (*StatusError)(nil); err != nil && !errors.As(err, &status) {
		err = fmt.Errorf("registering again: %w", err)
	}
	return connection, err
}

func register(ctx context.Context, client *http.Client, server string, identity Identity) (config.Connection, error) {
	address, err := url.JoinPath(server, "/v3/connect/agent")
	if err != nil {
		return config.Connection{}, fmt.Errorf("server %q of the connection info is not a URL", server)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return config.Connection{}, err
	}
	request.Header.Set("X-Cattle-Id", identity.ID)
	request.Header.Set("X-Cattle-Machine-Secret", identity.Secret)
	noRedirect := *client
	// A redirect would send the secret to another server.
	noRedirect.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := noRedirect.Do(request)
	if err != nil {
		return config.Connection{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	if err != nil {
		return config.Connection{}, fmt.Errorf("reading the response: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		status := NewStatusError(response.StatusCode, response.Header, body)
		status.NoStoredIdentity = response.Header.Get(storedIdentityHeader) == ""
		return config.Connection{}, status
	}
	return decode(body)
}

// decode decodes the response to a registration.
func decode(body []byte) (config.Connection, error) {
	var connection config.Connection
	if len(body) > maxResponseBytes {
		return connection, fmt.Errorf("the response is larger than %d bytes", maxResponseBytes)
	}
	if json.Unmarshal(body, &connection) != nil {
		return config.Connection{}, errors.New("the response is not connection info") // the cause could quote it
	}
	if err := connection.Validate(); err != nil {
		return config.Connection{}, fmt.Errorf("the response is not connection info: %w", err)
	}
	return connection, nil
}
