/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json-get [KEY|INDEX]... <JSON: what stands there. Strings are printed as they are, everything else as JSON; of an
 * array or object with `length` as the last word: how many there are. Status 1 where the input is not exactly one JSON
 * value, or there is nothing at that place: so without a word it is a check that something is JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static const json_t *descend(const json_t *value, const char *word)
{
        char *end;
        unsigned long at;

        if (json_is_object(value))
                return json_object_get(value, word);
        at = strtoul(word, &end, 10);
        return *word && *end == '\0' ? json_array_get(value, at) : NULL;
}

int main(int argc, char **argv)
{
        json_error_t error;
        json_t *root = json_loadf(stdin, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
        const json_t *value = root;

        if (!root) {
                fprintf(stderr, "json-get: line %d: %s\n", error.line, error.text);
                return 1;
        }
        for (int i = 1; i < argc && value; i++) {
                if (i + 1 == argc && strcmp(argv[i], "length") == 0 && !json_is_string(value)) {
                        printf("%zu\n", json_is_array(value) ? json_array_size(value) : json_object_size(value));
                        json_decref(root);
                        return 0;
                }
                value = descend(value, argv[i]);
        }
        if (!value) {
                fprintf(stderr, "json-get: there is no %s\n", argc > 1 ? argv[argc - 1] : "value");
                json_decref(root);
                return 1;
        }
        if (json_is_string(value))
                puts(json_string_value(value));
        else if (argc > 1) {
                json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
                putchar('\n');
        }
        json_decref(root);
        return 0;
}
