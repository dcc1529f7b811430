package build

import (
	"net/url"
	"os"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"

	"github.com/drover-dev/drover/packaging/images/sbom"
)

// DocumentSuffix follows the name of a package in that of its software bill of materials.
const DocumentSuffix = ".spdx.json"

// writeDocument writes the software bill of materials of a package that was written: every regular file, and what its programs were built
// from.
func (s *stage) writeDocument(info *nfpm.Info, path string) error {
	p := sbom.Package{Name: info.Name, Release: s.packageVersion(), File: path, Files: map[string]string{},
		URL: "pkg:" + s.format + "/drover/" + info.Name + "@" + url.QueryEscape(s.packageVersion()) + "?arch=" + info.Arch,
		Subject: sbom.Subject{Arch: s.arch, Version: s.Options.Version, License: info.License, Module: module, Created: s.Time,
			Tool: "drover-packages-" + s.Options.Version},
	}
	for _, c := range s.contents {
		switch c.Type {
		case files.TypeDir, files.TypeSymlink:
		default:
			p.Files[c.Destination] = c.Source
		}
	}
	raw, err := sbom.GeneratePackage(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path+DocumentSuffix, raw, 0o644)
}
