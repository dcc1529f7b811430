package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	registry "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/agent/printable"
)

// acceptHeader lists the media types of manifests that are requested.
var acceptHeader = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex), string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ",")

// client talks to one endpoint about one repository. It authenticates with its first request. It does not retry: see retrier.
type client struct {
	endpoint    endpoint
	repo        name.Repository
	transport   *transport
	credentials func(context.Context, name.Repository) []authn.Authenticator
	// refused is called when the endpoint has refused all credentials for the repository.
	refused func(name.Repository)

	mu sync.Mutex
	// authenticated is nil until the credentials in use have been shown to the endpoint.
	authenticated *http.Client
	// current are the credentials in use, nil until they were looked up; untried ones follow when they are refused.
	current authn.Authenticator
	untried []authn.Authenticator
}

// get requests a manifest or blob by kind ("manifests", "blobs") and tag or digest. Where credentials are refused, the next ones are tried.
// The caller closes the body.
func (c *client) get(ctx context.Context, kind, id string, header http.Header) (*http.Response, error) {
	for {
		authenticated, credentials, err := c.authenticate(ctx)
		if err == nil {
			var response *http.Response
			if response, err = c.do(ctx, authenticated, kind, id, header); err == nil {
				return response, nil
			}
		}
		err = stripQuery(err)
		if status := statusOf(err); status != http.StatusUnauthorized && status != http.StatusForbidden || !c.useNext(credentials) {
			return nil, err
		}
	}
}

func (c *client) do(ctx context.Context, authenticated *http.Client, kind, id string, header http.Header) (*http.Response, error) {
	target := url.URL{Scheme: c.endpoint.url.Scheme, Host: c.endpoint.url.Host, Path: "/v2/" + c.repo.RepositoryStr() + "/" + kind + "/" + id}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	response, err := authenticated.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusPartialContent {
		return response, nil
	}
	defer response.Body.Close()
	return nil, newStatusError(response)
}

// authenticate returns a client that shows the credentials in use, and those.
func (c *client) authenticate(ctx context.Context) (*http.Client, authn.Authenticator, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		c.current = authn.Anonymous
		if all := c.credentials(ctx, c.repo); len(all) > 0 {
			c.current, c.untried = all[0], all[1:]
		}
	}
	if c.authenticated == nil {
		scopes := []string{c.repo.Scope(registry.PullScope)}
		authenticated, err := registry.NewWithContext(ctx, c.repo.Registry, c.current, c.transport, scopes)
		if err != nil {
			return nil, c.current, err
		}
		c.authenticated = &http.Client{Transport: authenticated}
	}
	return c.authenticated, c.current, nil
}

// useNext switches from refused credentials to the next ones, unless another request has done so. It returns false if there are none.
func (c *client) useNext(refused authn.Authenticator) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused != c.current {
		return true
	}
	if len(c.untried) == 0 {
		if refused != authn.Anonymous {
			c.refused(c.repo)
		}
		return false
	}
	c.authenticated, c.current, c.untried = nil, c.untried[0], c.untried[1:]
	return true
}

// manifest requests a manifest by tag or digest, and returns it with the response's Content-Type.
func (c *client) manifest(ctx context.Context, id string) ([]byte, types.MediaType, error) {
	response, err := c.get(ctx, "manifests", id, http.Header{"Accept": {acceptHeader}})
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxManifestBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the manifest: %w", err)
	}
	if len(raw) > maxManifestBytes {
		return nil, "", &permanentError{fmt.Errorf("the manifest is larger than %d bytes", maxManifestBytes)}
	}
	contentType, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return raw, types.MediaType(strings.TrimSpace(contentType)), nil
}

// blob requests a blob from an offset on. A server that does not support ranges sends all of it, and what comes before the offset is
// discarded.
func (c *client) blob(ctx context.Context, layer v1.Descriptor, offset int64) (io.ReadCloser, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, layer.Size-1))
	}
	response, err := c.get(ctx, "blobs", layer.Digest.String(), header)
	if offset > 0 && statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		response, err = c.get(ctx, "blobs", layer.Digest.String(), http.Header{})
	}
	if err != nil {
		return nil, err
	}
	start, err := startOf(response, layer.Size, offset)
	if err == nil {
		_, err = io.CopyN(io.Discard, response.Body, offset-start)
		err = noEOF(err)
	}
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	return response.Body, nil
}

// config requests the configuration of an image.
func (c *client) config(ctx context.Context, descriptor v1.Descriptor) ([]byte, error) {
	body, err := c.blob(ctx, descriptor, 0)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxManifestBytes))
	if err != nil {
		return nil, err
	}
	return raw, verifyDigest(raw, descriptor.Digest)
}

// startOf returns at which byte of the blob a response starts, at most offset. What cannot be the blob, such as a login page, must not be
// taken for a part of it.
func startOf(response *http.Response, size, offset int64) (start int64, err error) {
	if response.StatusCode == http.StatusPartialContent {
		text := response.Header.Get("Content-Range")
		if _, err := fmt.Sscanf(text, "bytes %d-", &start); err != nil || start > offset {
			return 0, &permanentError{fmt.Errorf("got Content-Range %q, want one from byte %d on", text, offset)}
		}
	}
	if length := response.ContentLength; length >= 0 && length != size-start {
		return 0, &permanentError{fmt.Errorf("got %d bytes, want %d", length, size-start)}
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return 0, &permanentError{errors.New("got HTML instead of a layer: is a proxy or a login page in between?")}
	}
	return start, nil
}

// statusError is a response other than 200 and 206.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("unexpected status code %d %s", e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

func newStatusError(response *http.Response) *statusError {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	var body struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	message := ""
	if json.Unmarshal(raw, &body) == nil && len(body.Errors) > 0 {
		message = body.Errors[0].Code + ": " + body.Errors[0].Message
	} else if strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		message = string(raw)
	}
	return &statusError{status: response.StatusCode, message: printable.Line(message)}
}

// statusOf returns the HTTP status in an error, or 0.
func statusOf(err error) int {
	if own, ok := errors.AsType[*statusError](err); ok {
		return own.status
	}
	if library, ok := errors.AsType[*registry.Error](err); ok {
		return library.StatusCode
	}
	return 0
}

// stripQuery removes the URL from an error: the endpoint is named anyway, and a query may hold a signature.
func stripQuery(err error) error {
	if library, ok := errors.AsType[*registry.Error](err); ok {
		message := ""
		if len(library.Errors) > 0 {
			message = printable.Line(string(library.Errors[0].Code) + ": " + library.Errors[0].Message)
		}
		return &statusError{status: library.StatusCode, message: message}
	}
	if located, ok := errors.AsType[*url.Error](err); ok {
		return located.Err
	}
	return err
}
