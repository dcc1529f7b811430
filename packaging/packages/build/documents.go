package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"

	"github.com/drover-dev/drover/packaging/notices"
)

const (
	homepage   = "https://github.com/drover-dev/drover"
	module     = "github.com/drover-dev/drover"
	maintainer = "Drover maintainers <drover-dev@users.noreply.github.com>"
	// changelogTime is the format of dates in a Debian changelog.
	changelogTime = "Mon, 02 Jan 2006 15:04:05 -0700"
)

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: drover
Source: ` + homepage + `

Files: *
Copyright: 2026 The Drover authors
License: Apache-2.0

License: Apache-2.0
 Licensed under the Apache License, Version 2.0. You may obtain a copy of the
 license at http://www.apache.org/licenses/LICENSE-2.0
 .
 On Debian systems, the text of the license is in
 /usr/share/common-licenses/Apache-2.0.
Comment: The programs are static. The licenses and notices of the Go modules
 that they contain are in ` + notices.FileName + `.gz beside this file.
`

// documents adds licenses, changelog and, for Debian's checker, the reasons of what it would report. It follows the binaries, whose
// licenses these are.
func (s *stage) documents(name string) error {
	text, err := s.collector.Collect(context.Background(), s.programs...)
	if err != nil {
		return err
	}
	if s.format == RPM {
		license, err := os.ReadFile(filepath.Join(s.Source, "LICENSE"))
		if err != nil {
			return err
		}
		dir := "/usr/share/licenses/" + name + "/"
		if err := s.add(dir+"LICENSE", files.TypeRPMLicense, 0o644, license); err != nil {
			return err
		}
		return s.add(dir+notices.FileName, files.TypeRPMLicense, 0o644, text)
	}
	if err := s.add("/usr/share/doc/"+name+"/copyright", "", 0o644, []byte(copyright)); err != nil {
		return err
	}
	if err := s.addCompressed("/usr/share/doc/"+name+"/"+notices.FileName+".gz", text); err != nil {
		return err
	}
	changelog := strings.Join([]string{
		name + " (" + s.packageVersion() + ") stable; urgency=medium",
		"  * Version " + s.version.String() + ", see " + homepage + "/releases.",
		" -- " + maintainer + "  " + s.Time.UTC().Format(changelogTime),
	}, "\n\n") + "\n"
	if err := s.addCompressed("/usr/share/doc/"+name+"/changelog.Debian.gz", []byte(changelog)); err != nil {
		return err
	}
	return s.embedded("/usr/share/lintian/overrides/"+name, "", "lintian/"+name)
}
