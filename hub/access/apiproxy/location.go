package apiproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// redirectError is returned for a redirect that would lead the client, with its credential, away from the cluster that it asked.
type redirectError struct{ to string }

func (e *redirectError) Error() string { return fmt.Sprintf("it redirects to %s", e.to) }

// rewriteLocation writes the Location of an answer as the client has to read it. Clients follow redirects with the credential that they
// have for the hub, kubectl with each request and the same body, so that wherever a cluster points, it points to its own API: what it calls
// its root is not the root here, and neither another host nor another cluster can be named.
func (c *call) rewriteLocation(answer *http.Response) error {
	location := answer.Header.Get("Location")
	if location == "" {
		return nil
	}
	local, err := c.local(location, answer.Request.Host)
	switch {
	case err == nil:
		answer.Header.Set("Location", local)
	case answer.StatusCode >= http.StatusMultipleChoices && answer.StatusCode < http.StatusBadRequest:
		return err
	default:
		answer.Header.Del("Location")
	}
	return nil
}

// local returns the path of the hub for a Location. host is what the cluster was called in the request.
func (c *call) local(location, host string) (string, error) {
	u, err := c.url.Parse(location)
	if err != nil {
		return "", &redirectError{to: "something that is not a URL"}
	}
	if u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		if u.Scheme != "https" && u.Scheme != "" || u.Host != host || u.User != nil || u.Opaque != "" {
			return "", &redirectError{to: fmt.Sprintf("%q", u.Scheme+"://"+u.Host)}
		}
	}
	// Dots that are escaped were not resolved, and some clients do resolve them.
	if slices.Contains(strings.Split(u.Path, "/"), "..") || !strings.HasPrefix(u.Path, "/") {
		return "", &redirectError{to: "a path with .. in it"}
	}
	out := &url.URL{Path: u.Path, RawPath: u.EscapedPath(), RawQuery: u.RawQuery, Fragment: u.Fragment}
	// Another replica of the hub, or a cluster that has been told of the path, names it in full.
	if out.RawPath != c.root && !strings.HasPrefix(out.RawPath, c.root+"/") {
		out.Path, out.RawPath = c.root+out.Path, c.root+out.RawPath
	}
	return out.String(), nil
}
