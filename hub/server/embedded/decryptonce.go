package embedded

import (
	"bytes"
	"context"

	"k8s.io/apiserver/pkg/storage/value"
)

// decryptOnce is the transformer with which Secrets are stored. It does not decrypt what it has encrypted lately, as decodeOnce does not
// decode it: what is decrypted is what was encrypted. Nothing that this process has encrypted is stale, since its keys do not change while
// it runs: the API server does not reload its encryption configuration, and there is no KMS.
type decryptOnce struct {
	value.Transformer
	written *recent[encrypted]
}

// encrypted is what was encrypted, and for which key of etcd. Nobody may change either.
type encrypted struct{ data, authenticated []byte }

func newDecryptOnce(transformer value.Transformer) *decryptOnce {
	return &decryptOnce{transformer, newRecent[encrypted]()}
}

func (t *decryptOnce) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	out, err := t.Transformer.TransformToStorage(ctx, data, dataCtx)
	if err == nil {
		t.written.hold(string(out), encrypted{data, dataCtx.AuthenticatedData()})
	}
	return out, err
}

func (t *decryptOnce) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) (out []byte, stale bool, err error) {
	written, held := t.written.held(data)
	if held && bytes.Equal(written.authenticated, dataCtx.AuthenticatedData()) {
		return written.data, false, nil
	}
	return t.Transformer.TransformFromStorage(ctx, data, dataCtx)
}
