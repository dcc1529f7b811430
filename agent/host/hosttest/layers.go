package hosttest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"strings"

	"github.com/drover-dev/drover/agent/host"
)

func newWhole(content string) io.Reader { return strings.NewReader(content) }

// layer is an archive; the content of a file is in Linkname.
func (s *suite) layer(entries ...tar.Header) io.Reader {
	s.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, header := range entries {
		content := ""
		if header.Typeflag == 0 || header.Typeflag == tar.TypeReg {
			content, header.Linkname, header.Size = header.Linkname, "", int64(len(header.Linkname))
		}
		s.ok(w.WriteHeader(&header))
		_, err := io.WriteString(w, content)
		s.ok(err)
	}
	s.ok(w.Close())
	return &raw
}

var layers = map[string]func(*suite){
	"unpack/files, folders and links": func(s *suite) {
		s.mkdir("d", 0o700)
		s.ok(s.Host.Unpack(s.Context(), s.path("d"), s.layer(
			tar.Header{Name: "run.sh", Linkname: "run", Mode: 0o755}, tar.Header{Name: "/bin/setuid", Linkname: "x", Mode: 0o6775, Uid: 12, Gid: 34},
			tar.Header{Name: "deep/er/", Typeflag: tar.TypeDir, Mode: 0o700}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "run.sh"},
			tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})))
		s.names("d", "bin", "deep", "l", "run.sh")
		s.holds("d/l", "run")
		s.is("d/bin/setuid", "file", host.Private(0o755))
		s.is("d/deep/er", "folder", host.Private(0o755))
		s.ok(s.Host.Sync(s.path("d")))
	},
	"unpack/one layer over another": func(s *suite) {
		s.mkdir("d", 0o700)
		s.ok(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "a", Linkname: "1"}, tar.Header{Name: "b/one", Linkname: "1"},
			tar.Header{Name: "c/one", Linkname: "1"})))
		s.ok(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "a", Linkname: "2"}, tar.Header{Name: ".wh.b"},
			tar.Header{Name: "c/two", Linkname: "2"}, tar.Header{Name: "c/.wh..wh..opq"})))
		s.names("d", "a", "c")
		s.names("d/c", "two")
		s.holds("d/a", "2")
	},
	"unpack/nothing outside": func(s *suite) {
		s.mkdir("d", 0o700)
		s.fails(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "../f", Linkname: "bad"})))
		s.names(".", "d")
	},
	"unpack/no layer, no folder, no time": func(s *suite) {
		s.mkdir("d", 0o700)
		s.fails(s.Host.Unpack(s.Context(), s.path("d"), strings.NewReader(strings.Repeat("no layer", 100))))
		s.fails(s.Host.Unpack(s.Context(), s.path("none"), s.layer(tar.Header{Name: "f"})), fs.ErrNotExist)
		ended, end := context.WithCancel(s.Context())
		end()
		s.fails(s.Host.Unpack(ended, s.path("d"), s.layer(tar.Header{Name: "f"})), context.Canceled)
		s.names("d")
	},
}
