package fs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// extension is a raw entry of a kind that tar.Writer does not let its callers write: the header of the next entry, overridden.
func extension(t *testing.T, kind byte, content string) []byte {
	t.Helper()
	raw, err := io.ReadAll(layer(t, file("extension", content)))
	must(t, err)
	raw = raw[:512+(len(content)+511)/512*512]
	raw[156] = kind
	copy(raw[148:156], "        ")
	sum := 0
	for _, b := range raw[:512] {
		sum += int(b)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

func paxRecord(key, value string) string {
	text := " " + key + "=" + value + "\n"
	size := len(text) + 2
	if size > 99 {
		size++
	}
	return strconv.Itoa(size) + text
}

// TestUnpackExtensionHeaders shows that it is the name in the end that counts (S6), wherever in the archive it stands.
func TestUnpackExtensionHeaders(t *testing.T) {
	for name, test := range map[string]struct {
		before []byte
		entry  tar.Header
		err    string
	}{
		"PAX path": {before: extension(t, tar.TypeXHeader, paxRecord("path", "../victim")), entry: file("good", "bad"),
			err: "outside of the directory"},
		"PAX link path": {before: extension(t, tar.TypeXHeader, paxRecord("linkpath", "../victim")),
			entry: link(tar.TypeLink, "good", "good"), err: "outside of the directory"},
		"PAX zero byte": {before: extension(t, tar.TypeXHeader, paxRecord("path", "a\x00../victim")), entry: file("good", "bad"),
			err: "reading layer"},
		"PAX size": {before: extension(t, tar.TypeXHeader, paxRecord("size", "9223372036854775807")), entry: file("good", "bad"),
			err: "more than"},
		"PAX not a size": {before: extension(t, tar.TypeXHeader, paxRecord("size", "-5")), entry: file("good", "bad"),
			err: "reading layer"},
		"GNU long name": {before: extension(t, tar.TypeGNULongName, "x/../../victim\x00"), entry: file("good", "bad"),
			err: "outside of the directory"},
		"GNU long link": {before: extension(t, tar.TypeGNULongLink, "../victim\x00"), entry: link(tar.TypeLink, "good", "good"),
			err: "outside of the directory"},
		"too deep": {entry: tar.Header{Name: strings.Repeat("d/", maxDepth+1) + "leaf", Format: tar.FormatGNU, Mode: 0o644},
			err: "more than 255 parent directories"},
		"too long": {before: extension(t, tar.TypeGNULongName, strings.Repeat("a/", 3000)+"b\x00"), entry: file("good", "bad"),
			err: "longer than 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			dir := filepath.Join(outside, "in")
			must(t, os.Mkdir(dir, 0o755))
			err := OS{}.Unpack(t.Context(), dir, io.MultiReader(bytes.NewReader(test.before), layer(t, test.entry)))
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if names, _ := (OS{}).ReadDir(outside); len(names) != 1 {
				t.Errorf("outside there is %v", names)
			}
		})
	}
}

// TestUnpackKeepsOddNamesInside shows what is no attack in the end: names that only look like one stay in the directory.
func TestUnpackKeepsOddNamesInside(t *testing.T) {
	dir := t.TempDir()
	deep := strings.Repeat("d/", maxDepth) + "leaf"
	entries := []tar.Header{
		file("/etc/absolute", "1"), file("a/./b//../c", "2"), file("...", "3"), file("..a", "4"), file("bad-\xff\xfe-utf8",
			"5"), file("line\nend", "6"),
		{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}, {Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1,
			Devminor: 1}, {Typeflag: tar.TypeFifo, Name: "pipe"},
		{Name: "setuid", Linkname: "7", Mode: 0o6755}, {Name: "all-write", Linkname: "8", Mode: 0o666}, {Typeflag: tar.TypeXGlobalHeader,
			Name: "global", PAXRecords: map[string]string{"comment": "x"}},
		{Name: deep, Linkname: "9", Format: tar.FormatGNU},
		// A link to the outside does no harm as long as nothing goes through it.
		link(tar.TypeSymlink, "host-etc", "/etc"), link(tar.TypeSymlink, "up", "../../.."),
	}
	must(t, OS{}.Unpack(t.Context(), dir, layer(t, entries...)))
	got := tree(t, dir)
	for name := range got {
		if strings.HasPrefix(name, "d/") || name == "d" {
			delete(got, name)
		}
	}
	want := map[string]string{
		"etc": "drwxr-xr-x", "etc/absolute": "-rw-r--r-- 1", "a": "drwxr-xr-x", "a/c": "-rw-r--r-- 2", "...": "-rw-r--r-- 3",
		"..a":               "-rw-r--r-- 4",
		"bad-\xff\xfe-utf8": "-rw-r--r-- 5", "line\nend": "-rw-r--r-- 6", "setuid": "-rwxr-xr-x 7", "all-write": "-rw-r--r-- 8",
		"host-etc": "-> /etc", "up": "-> ../../..",
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%q is %q, want %q", name, got[name], text)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("also there: %v", got)
	}
	must(t, OS{}.RemoveAll(dir)) // the deep path too
}

func TestUnpackOfTooManyEntries(t *testing.T) {
	var entries []tar.Header
	for i := range 11 {
		entries = append(entries, file(strconv.Itoa(i), ""))
	}
	if err := unpack(t.Context(), t.TempDir(), layer(t, entries...), 10); err == nil ||
		!strings.Contains(err.Error(), "more than 10 entries") {
		t.Errorf("got %v", err)
	}
	must(t, unpack(t.Context(), t.TempDir(), layer(t, entries[:10]...), 10))
}

// TestUnpackThroughAFolderThatChanges shows that the directory kept open for the next file is not used when an entry has changed it.
func TestUnpackThroughAFolderThatChanges(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "in")
	must(t, os.Mkdir(dir, 0o755))
	must(t, OS{}.Unpack(t.Context(), dir, layer(t, file("a/one", "1"), file("a", "now a file"), file("b/two", "2"), file(".wh.b", ""),
		file("b/three", "3"),
		file("c/four", "4"), link(tar.TypeSymlink, "c", "b"), file("c/five", "5"))))
	want := map[string]string{"a": "-rw-r--r-- now a file", "b": "drwxr-xr-x", "b/three": "-rw-r--r-- 3", "b/five": "-rw-r--r-- 5",
		"c": "-> b"}
	got := tree(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%q is %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	if err := (OS{}).Unpack(t.Context(), dir, layer(t, file("d/one", "1"), link(tar.TypeSymlink, "d", ".."),
		file("d/two", "2"))); err == nil {
		t.Error("a link to the outside was followed")
	}
	if names, _ := (OS{}).ReadDir(outside); len(names) != 1 {
		t.Errorf("outside there is %v", names)
	}
}
