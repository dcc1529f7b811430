package images

import (
	"strings"

	"github.com/drover-dev/drover/installer/oci"
)

// nonRoot is a user ID that no machine uses, as in distroless images. The manifests of the hub and the cluster-agent set the same one.
const nonRoot = 65532

const (
	passwd = `root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
`
	group = `root:x:0:
nobody:x:65534:
nonroot:x:65532:
`
	// nsswitch makes programs read /etc/hosts before they ask a name server.
	nsswitch = "hosts: files dns\n"
)

// baseLayer is what a static program needs, and what is the same in all images. There is no shell and no library.
func baseLayer(certificates Certificates) oci.Layer {
	home := oci.Directory("home/nonroot", 0o700)
	home.UID, home.GID = nonRoot, nonRoot
	return oci.Layer{Comment: "certificate authorities and users", Entries: []oci.Entry{
		oci.Directory("etc", 0o755),
		oci.Directory("etc/ssl", 0o755),
		oci.Directory("etc/ssl/certs", 0o755),
		oci.InMemory(bundlePath, 0o644, certificates.PEM),
		oci.InMemory("etc/group", 0o644, []byte(group)),
		oci.InMemory("etc/nsswitch.conf", 0o644, []byte(nsswitch)),
		oci.InMemory("etc/passwd", 0o644, []byte(passwd)),
		oci.Directory("home", 0o755),
		home,
		oci.Directory("root", 0o700),
		oci.Directory("tmp", 0o1777),
	}}
}

// releaseFile describes the image to somebody who looks inside, in the format of os-release(5).
func releaseFile(name string, opts Options) oci.Entry {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			b.WriteString(key + "=\"" + value + "\"\n")
		}
	}
	line("NAME", "Drover "+name)
	line("VERSION", opts.Version)
	line("BUILD_ID", opts.Revision)
	line("CA_CERTIFICATES_VERSION", opts.Certificates.Version)
	return oci.InMemory("etc/drover-release", 0o644, []byte(b.String()))
}
