package settings

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ParseServerURL returns a URL for Settings.ServerURL without slashes at its end. The error says what it must be: the gateway is found at
// the root of a host, by whatever is appended to the URL.
func ParseServerURL(text string) (string, error) {
	if !strings.HasPrefix(text, "https://") {
		return "", fmt.Errorf("must begin with https://, got %q", text)
	}
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		// The error quotes the URL, which may have a password.
		return "", errors.New("must be https://<host> or https://<host>:<port>: it is not a URL")
	case parsed.User != nil:
		return "", errors.New("must be https://<host> or https://<host>:<port>, without a user: machines have credentials of their own")
	case parsed.Hostname() == "", strings.HasSuffix(parsed.Host, ":"), strings.ContainsAny(text, "?#"),
		strings.Trim(parsed.EscapedPath(), "/") != "":
		return "", fmt.Errorf("must be https://<host> or https://<host>:<port>, without a path, a query or a fragment, got %q", text)
	}
	return "https://" + parsed.Host, nil
}
