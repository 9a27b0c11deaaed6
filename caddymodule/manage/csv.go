package manage

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"time"
)

// maxRows bounds the rows of a table.
const maxRows = 100_000

// tableAction is an operation that answers with what find returns or, with "?format=csv", with a file of all records.
func tableAction[Q, A, T any](name string, find func(*Service, context.Context, Q) (A, error),
	records func(*Service, context.Context, Q, A) iter.Seq2[T, error],
) action {
	a := call(ok, func(s *Service, ctx context.Context, q Q) (any, error) {
		format := reflect.ValueOf(q).FieldByName("Format").String()
		if format != "" && format != "json" && format != "csv" {
			return nil, badRequest("query parameter %q is %.40q; it must be json or csv", "format", format)
		}
		answer, err := find(s, ctx, q)
		if err != nil || format != "csv" {
			return answer, err
		}
		return download{"text/csv; charset=utf-8", name + ".csv", func(w io.Writer) error {
			return writeCSV(w, records(s, ctx, q, answer))
		}}, nil
	})
	a.Answer = reflect.TypeFor[A]()
	return a
}

// whole returns the records of an answer that has all of them.
func whole[Q, T any](_ *Service, _ context.Context, _ Q, all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, record := range all {
			if !yield(record, nil) {
				return
			}
		}
	}
}

// writeCSV writes a table of records with the columns of their JSON, but the histograms.
func writeCSV[T any](w io.Writer, records iter.Seq2[T, error]) error {
	out := csv.NewWriter(w)
	var columns [][]int
	var row []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && f.Type.Kind() != reflect.Array {
			columns, row = append(columns, f.Index), append(row, name)
		}
	}
	err := out.Write(row)
	for record, failed := range records {
		if failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		for i, index := range columns {
			row[i] = cell(reflect.ValueOf(record).FieldByIndex(index))
		}
		err = out.Write(row)
	}
	out.Flush()
	return errors.Join(err, out.Error())
}

// cell returns a value as a cell that no spreadsheet takes for a formula.
func cell(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case []string, map[string]string:
		if v.Len() == 0 {
			return ""
		}
		list, _ := json.Marshal(value) // of strings
		return string(list)
	}
	text := fmt.Sprint(v.Interface())
	if v.Kind() == reflect.String && text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
