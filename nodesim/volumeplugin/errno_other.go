//go:build !unix

package volumeplugin

func errnoByName(string) (error, bool) { return nil, false }
