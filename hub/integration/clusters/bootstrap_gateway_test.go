package clusters

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"testing"
)

// gatewayAnswer is an unexpected response of the gateway.
type gatewayAnswer struct {
	code int
	body string
}

func (a *gatewayAnswer) Error() string {
	return fmt.Sprintf("the gateway answers %d %s", a.code, a.body)
}

func gunzip(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
