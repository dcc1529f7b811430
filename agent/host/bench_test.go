package host

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"testing"
)

// BenchmarkUnpack unpacks a layer as installer images have them: a few files, one of them large.
func BenchmarkUnpack(b *testing.B) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for i, size := range []int{64 << 20, 4 << 10, 4 << 10} {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("file-%d", i), Mode: 0o755, Size: int64(size)}
		if err := archive.WriteHeader(header); err != nil {
			b.Fatal(err)
		}
		if _, err := archive.Write(make([]byte, size)); err != nil {
			b.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(layer.Len()))
	b.ReportAllocs()
	dir := b.TempDir()
	for b.Loop() {
		if err := (Machine{}).Unpack(context.Background(), dir, bytes.NewReader(layer.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
