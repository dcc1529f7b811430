package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

// insecure verifies no certificate: it reads only what is public.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // of a hub on the loopback network
}

// open requests a page, which must be there.
func open(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("requesting %s: %s", url, response.Status)
	}
	return response.Body, nil
}

// get reads a page.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	body, err := open(ctx, client, url)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}
