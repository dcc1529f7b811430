package hosttest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"strings"

	"github.com/drover-dev/drover/agent/host/fs"
)

// layer is a tar stream; the Linkname of a file is its content.
func (s *suite) layer(entries ...tar.Header) io.Reader {
	s.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, header := range entries {
		content := ""
		if header.Typeflag == 0 || header.Typeflag == tar.TypeReg {
			content, header.Linkname, header.Size = header.Linkname, "", int64(len(header.Linkname))
		}
		s.must(w.WriteHeader(&header))
		_, err := io.WriteString(w, content)
		s.must(err)
	}
	s.must(w.Close())
	return &raw
}

var layers = map[string]func(*suite){
	"unpack/files, directories and links": func(s *suite) {
		s.mkdir("d", 0o700)
		s.must(s.Host.Unpack(s.Context(), s.path("d"), s.layer(
			tar.Header{Name: "run.sh", Linkname: "run", Mode: 0o755}, tar.Header{Name: "/bin/setuid", Linkname: "x", Mode: 0o6775,
				Uid: 12, Gid: 34},
			tar.Header{Name: "deep/er/", Typeflag: tar.TypeDir, Mode: 0o700}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink,
				Linkname: "run.sh"},
			tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})))
		s.wantNames("d", "bin", "deep", "l", "run.sh")
		s.wantContent("d/l", "run")
		s.wantEntry("d/bin/setuid", "file", fs.WithMode(0o755))
		s.wantEntry("d/deep/er", "directory", fs.WithMode(0o755))
		s.must(s.Host.Sync(s.path("d")))
	},
	"unpack/two layers": func(s *suite) {
		s.mkdir("d", 0o700)
		s.must(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "a", Linkname: "1"},
			tar.Header{Name: "b/one", Linkname: "1"},
			tar.Header{Name: "c/one", Linkname: "1"})))
		s.must(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "a", Linkname: "2"}, tar.Header{Name: ".wh.b"},
			tar.Header{Name: "c/two", Linkname: "2"}, tar.Header{Name: "c/.wh..wh..opq"})))
		s.wantNames("d", "a", "c")
		s.wantNames("d/c", "two")
		s.wantContent("d/a", "2")
	},
	"unpack/outside of the directory": func(s *suite) {
		s.mkdir("d", 0o700)
		s.wantError(s.Host.Unpack(s.Context(), s.path("d"), s.layer(tar.Header{Name: "../f", Linkname: "bad"})))
		s.wantNames(".", "d")
	},
	"unpack/errors": func(s *suite) {
		s.mkdir("d", 0o700)
		s.wantError(s.Host.Unpack(s.Context(), s.path("d"), strings.NewReader(strings.Repeat("no layer", 100))))
		s.wantError(s.Host.Unpack(s.Context(), s.path("none"), s.layer(tar.Header{Name: "f"})), os.ErrNotExist)
		canceled, cancel := context.WithCancel(s.Context())
		cancel()
		s.wantError(s.Host.Unpack(canceled, s.path("d"), s.layer(tar.Header{Name: "f"})), context.Canceled)
		s.wantNames("d")
	},
}
